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
  bool apart = false;  ///< may run in parts (parts.h)
};

}  // namespace nitinol::algorithm
