// A rank's program on a channel, divided into parts that run at the same time: each runs the whole program and carries
// out only the transfers that are its own. So a rank that waits for what one peer has to send goes on sending to the
// others, and combines meanwhile. Which transfer is whose depends on its shape, and on its peer where parts are divided
// by peers:
//
//                                                             by role       by peer
//   copies, combines, and goes to all                         0            0
//   sends own data to the rank d steps after                  1            d
//   takes from the rank d steps before, without combining     2            ranks - 1 + d
//
// Parts share no connection. In a reduction contributions and results travel on streams of their own, that is, on two
// connections for each ordered pair of ranks: contributions, which part 0 takes, on stream 0; results on stream 1.
//
// Rows of the table with `apart` may be run so, reductions divided in either way and the others by peer: the verifier
// shows for each that it gives the same in any interleaving.
#pragma once

#include "algorithm/primitives.h"

namespace nitinol::algorithm {

enum class Division { kByRole, kByPeer };

NITINOL_HOST_DEVICE constexpr int parts_of(Division division, int ranks) {
  return division == Division::kByRole ? 3 : 2 * ranks - 1;
}

/// Of parts with CTAs of their own.
NITINOL_HOST_DEVICE constexpr Division division_of(bool reduces) {
  return reduces ? Division::kByRole : Division::kByPeer;
}

/// The part of `rank` that carries out a transfer. `from` and `to` as in Operands.
NITINOL_HOST_DEVICE constexpr int part_of(Division division, const Flow& flow, int from, int to, int rank, int ranks) {
  const bool by_role = division == Division::kByRole;
  if (flow.from == Peers::kNone && flow.to == Peers::kOne) return by_role ? 1 : (to - rank + ranks) % ranks;
  if (flow.from == Peers::kOne && !flow.own) return by_role ? 2 : ranks - 1 + (rank - from + ranks) % ranks;
  return 0;
}

/// How many streams there are, and the ones from which a part takes and into which it puts.
NITINOL_HOST_DEVICE constexpr int streams_of(bool reduces) { return reduces ? 2 : 1; }
NITINOL_HOST_DEVICE constexpr int stream_in(bool reduces, int part) { return reduces && part > 0 ? 1 : 0; }
NITINOL_HOST_DEVICE constexpr int stream_out(bool reduces, int part) { return reduces && part == 0 ? 1 : 0; }

}  // namespace nitinol::algorithm
