// What the table of algorithms says about each.
#pragma once

#include "algorithm/primitives.h"

namespace nitinol::algorithm {

struct Row {
  Collective what;
  Algorithm algorithm;
  /// Combines contributions in rank order with one rounding: results do not depend on sizes, chunks or channels.
  /// Always true for algorithms that only move data.
  bool canonical;
  /// The same where one of the first two ranks or the last one is the root, for types that are added in their own
  /// width: partial sums are sent.
  bool canonical_to_ends = false;
  bool apart = false;  ///< may run in parts (parts.h)
};

}  // namespace nitinol::algorithm
