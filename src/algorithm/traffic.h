// What an algorithm moves between two ranks.
#pragma once

#include <cstddef>

#include "model/types.h"

namespace nitinol::algorithm {

/// Bytes that go from one rank to one peer in one step, of an operation on blocks of `bytes`.
constexpr size_t message_bytes(Algorithm algorithm, size_t bytes, int ranks) {
  const bool in_blocks = algorithm == Algorithm::kTwoShot || algorithm == Algorithm::kRing;
  return in_blocks ? bytes / static_cast<size_t>(ranks) : bytes;
}

}  // namespace nitinol::algorithm
