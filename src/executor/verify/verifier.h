// Proves that a program does what its collective promises, by running it on symbols.
//
//   elements            ->  who contributed, in which order, scaled and finished or not
//   buffers, messages   ->  runs of such elements
//   interleaving        ->  any: a network of sequential programs over bounded queues has one outcome (Kahn 1974)
//
// It finds: a result that is wrong, missing or written twice; anything outside the rank's buffers or share; input read
// after it was overwritten in place; spans that executors could not split over workers; messages of the wrong length or
// left over; transfers longer than a chunk; deadlock.
#pragma once

#include <cstdint>

#include "algorithm/trace.h"
#include "executor/verify/finding.h"

namespace nitinol::verify {

struct Options {
  int slots = algorithm::kLeastSlots;  ///< of each connection
  bool in_place = false;               ///< on the ranks where the collective has an in-place form
  bool canonical = false;              ///< reductions must be one reduction in rank order
  uint64_t seed = 0;                   ///< 0: run one rank as far as it goes; else an interleaving drawn from this
};

/// Each channel of a collective is a program of its own: verify them one by one.
Report verify(const algorithm::Program& program, const Options& options);

}  // namespace nitinol::verify
