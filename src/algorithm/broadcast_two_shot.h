// Broadcast in two steps: the root deals out one block of each round to each other rank, and every rank pushes its
// block on to all others that lack it, so that the root's outgoing link carries the data once and not n-1 times. Each
// round's blocks are dealt and passed on before those of the round before are awaited.
#pragma once

#include "algorithm/two_shot.h"

namespace nitinol::algorithm {

struct BroadcastTwoShot {
  static constexpr Row row{
      .what = Collective::kBroadcast, .algorithm = Algorithm::kTwoShot, .canonical = true, .apart = true};

  template <class P>
  static NITINOL_HOST_DEVICE void lead(P& p, const Share& share) {
    const size_t rounds = rounds_in(share, p.ranks() - 1);
    for (size_t k = 0; k < rounds; ++k) {
      const Round round = round_of(share, k, p.ranks() - 1);
      for (int distance = 1; distance < p.ranks(); ++distance) {
        const int peer = rank_after(p.rank(), distance, p.ranks());
        const Run block = block_beside_root(p, round, peer);
        if (block.count > 0) p.copy_and_send(input(block.offset, block.count), output(block.offset, block.count), peer);
      }
    }
  }

  template <class P>
  static NITINOL_HOST_DEVICE void pass_on(P& p, const Run& mine) {
    if (mine.count == 0) return;
    if (p.ranks() == 2) {
      p.recv(p.root(), output(mine.offset, mine.count));
    } else {
      p.recv_and_push_to_all_but(p.root(), output(mine.offset, mine.count), p.root());
    }
  }

  template <class P>
  static NITINOL_HOST_DEVICE void follow(P& p, const Share& share) {
    const size_t rounds = rounds_in(share, p.ranks() - 1);
    Round next = round_of(share, 0, p.ranks() - 1);
    pass_on(p, block_beside_root(p, next, p.rank()));
    for (size_t k = 0; k < rounds; ++k) {
      const Round now = next;
      next = round_of(share, k + 1, p.ranks() - 1);
      pass_on(p, block_beside_root(p, next, p.rank()));
      gather_blocks_beside_root(p, now);
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
