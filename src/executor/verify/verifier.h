// Proves that a program does what its collective promises, by running it on symbols.
//
//   elements            ->  who contributed, in which order, scaled and finished or not
//   buffers, messages   ->  runs of such elements
//   interleaving        ->  any: a network of sequential programs over bounded queues has one outcome (Kahn 1974)
//
// In a program in parts, the parts of a rank share its buffers, which are no queues. One run still stands for all if
// what one part writes and another touches are ordered by messages, so that is checked too.
//
// It finds: a result that is wrong, missing or written twice; anything outside the rank's buffers or share; input read
// after it was overwritten in place; spans that executors could not split over workers; messages of the wrong length or
// left over; transfers longer than a chunk; deadlock; parts that share a connection, or memory in no certain order.
#pragma once

#include <cstdint>

#include "algorithm/trace.h"
#include "executor/verify/finding.h"

namespace nitinol::verify {

/// Processes that go on only when no other can: those of one rank, or certain parts of every rank.
struct Starved {
  int rank = -1;  ///< -1: every rank
  int first_part = 0;
  int parts = 0;  ///< 0: nobody
};

struct Options {
  int slots = algorithm::kLeastSlots;  ///< of each connection
  bool in_place = false;               ///< on the ranks where the collective has an in-place form
  bool canonical = false;              ///< reductions must be one reduction in rank order;
  bool in_steps = false;               ///< or one rank after the other may be added: the type is added in its own width
  uint64_t seed = 0;                   ///< 0: run one process as far as it goes; else an interleaving drawn from this
  Starved starved{};
};

/// Each channel of a collective is a program of its own: verify them one by one.
Report verify(const algorithm::Program& program, const Options& options);

}  // namespace nitinol::verify
