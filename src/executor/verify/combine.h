// Reductions on symbols.
#pragma once

#include <functional>

#include "executor/verify/finding.h"
#include "executor/verify/value.h"

namespace nitinol::verify {

using Complain = std::function<void(Fault, const std::string&)>;

struct CombineRules {
  int ranks = 0;         ///< a finished reduction holds the contributions of so many
  bool reduces = false;  ///< false: the collective only moves data
  bool finish = false;
};

/// Combines sources of equal length, element by element, in the order given. A single source passes as it is.
Pieces combine(const std::vector<const Pieces*>& sources, const CombineRules& rules, Values& values,
               const Complain& complain);

}  // namespace nitinol::verify
