// Which algorithm, protocol, number of channels and chunk an operation gets. Pure: computed from what all ranks agree
// on.
#pragma once

#include "model/limits.h"
#include "model/plan.h"
#include "tuning/rules.h"

namespace nitinol {

/// One operation, as all its ranks see it alike.
struct Question {
  Collective what = Collective::kAllReduce;
  size_t count = 0;  ///< elements per rank's block
  DataType type = DataType::kUint8;
  bool order_free = true;
  bool sum = true;      ///< the reduction adds; true where there is none
  bool scaled = false;  ///< it has a scalar
  int ranks = 1;
  int root = 0;  ///< of a reduce

  bool operator==(const Question&) const = default;
};

Question question_of(const CollectiveWork& work, int ranks);

/// Throws Error(ncclInvalidUsage) if the rules leave nothing that serves.
Plan choose(const Question& question, const Limits& limits, const Rules& rules);

}  // namespace nitinol
