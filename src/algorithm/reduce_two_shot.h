// Reduce in two steps: each rank but the root reduces one block of each round and sends the sum to the root. The work
// of reducing is shared, and every link carries the data about once. Each round's blocks are sent before those of the
// round before are reduced.
#pragma once

#include "algorithm/two_shot.h"

namespace nitinol::algorithm {

struct ReduceTwoShot {
  static constexpr Row row{
      .what = Collective::kReduce, .algorithm = Algorithm::kTwoShot, .canonical = true, .apart = true};

  /// Every other rank's block but the root's, which has none.
  template <class P>
  static NITINOL_HOST_DEVICE void scatter(P& p, const Round& round, int turn) {
    for (int i = 1; i < p.ranks(); ++i) {
      const int peer = rank_after(p.rank(), distance_at(i, turn, p.ranks()), p.ranks());
      if (peer == p.root()) continue;
      const Run block = block_beside_root(p, round, peer);
      if (block.count > 0) p.send(peer, input(block.offset, block.count));
    }
  }

  template <class P>
  static NITINOL_HOST_DEVICE void lead(P& p, const Share& share) {
    Round now{};
    Round next = round_of(share, 0, p.ranks() - 1);
    for (size_t k = 1; now.begin < now.end || next.begin < next.end; ++k) {
      scatter(p, next, share.turn);
      gather_blocks_beside_root(p, now);
      now = next;
      next = round_of(share, k, p.ranks() - 1);
    }
  }

  template <class P>
  static NITINOL_HOST_DEVICE void follow(P& p, const Share& share) {
    const size_t rounds = rounds_in(share, p.ranks() - 1);
    Round next = round_of(share, 0, p.ranks() - 1);
    scatter(p, next, share.turn);
    for (size_t k = 1; k <= rounds; ++k) {
      const Round now = next;
      next = round_of(share, k, p.ranks() - 1);
      scatter(p, next, share.turn);
      const Run mine = block_beside_root(p, now, p.rank());
      if (mine.count > 0) p.reduce_from_all_and_send(input(mine.offset, mine.count), p.root());
    }
  }

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const Share even = even_chunks(share, p.ranks() - 1);
    if (p.rank() == p.root()) {
      lead(p, even);
    } else {
      follow(p, even);
    }
  }
};

}  // namespace nitinol::algorithm
