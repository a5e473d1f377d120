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

/// Bytes that go from one rank to one peer in all, where that is more: in a ring all that goes to a root, or comes from
/// it, passes each rank.
constexpr size_t bytes_to_peer(Collective what, Algorithm algorithm, size_t bytes, int ranks) {
  const bool passes_all = algorithm == Algorithm::kRing && rooted(what);
  return passes_all ? bytes : message_bytes(algorithm, bytes, ranks);
}

}  // namespace nitinol::algorithm
