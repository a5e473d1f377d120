// Broadcast in two steps: the root deals out one block of each round to each rank, and every rank pushes its block to all
// the others, so that the root's outgoing bandwidth is needed about once and not n-1 times.
#pragma once

#include "algorithm/two_shot.h"

namespace nitinol::algorithm {

struct BroadcastTwoShot {
  static constexpr Row row{.what = Collective::kBroadcast, .algorithm = Algorithm::kTwoShot, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void deal(P& p, const Share& share, size_t round) {
    scatter_blocks(p, share, round);
    const Run mine = block_of(share, round, p.rank(), p.ranks());
    if (mine.count > 0) {
      p.copy_and_push_to_all(input(mine.offset, mine.count), output(mine.offset, mine.count));
    }
    for (int peer = 0; peer < p.ranks(); ++peer) {
      const Run block = block_of(share, round, peer, p.ranks());
      if (peer != p.rank() && block.count > 0) {
        p.copy(input(block.offset, block.count), output(block.offset, block.count));
      }
    }
  }

  template <class P>
  static NITINOL_HOST_DEVICE void pass_on(P& p, const Share& share, size_t round) {
    const Run mine = block_of(share, round, p.rank(), p.ranks());
    if (mine.count > 0) p.recv_and_push_to_all_but(p.root(), output(mine.offset, mine.count), p.root());
    gather_blocks(p, share, round);
  }

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const size_t rounds = rounds_in(share, p.ranks());
    for (size_t k = 0; k < rounds; ++k) {
      if (p.rank() == p.root()) {
        deal(p, share, k);
      } else {
        pass_on(p, share, k);
      }
    }
  }
};

}  // namespace nitinol::algorithm
