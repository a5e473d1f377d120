// Chooses the fastest way to combine arrays that this processor offers.
#pragma once

#include <vector>

#include "executor/cpu/reduce_table.h"

namespace nitinol::cpu {

struct ReduceVariant {
  const char* name;
  const ReduceTable* table;
};

/// What this processor can run, the fastest last. All give the same bits.
const std::vector<ReduceVariant>& reduce_variants();

/// The fastest.
const ReduceTable& reduce_table();

}  // namespace nitinol::cpu
