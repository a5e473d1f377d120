// Reduce in two steps: each rank reduces one block of each round and sends the sum to the root. The work of reducing
// and the incoming bandwidth are shared by all ranks.
#pragma once

#include "algorithm/two_shot.h"

namespace nitinol::algorithm {

struct ReduceTwoShot {
  static constexpr Row row{.what = Collective::kReduce, .algorithm = Algorithm::kTwoShot, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void reduce_mine(P& p, const Run& mine) {
    if (mine.count == 0) return;
    if (p.rank() == p.root()) {
      p.reduce_from_all(input(mine.offset, mine.count), output(mine.offset, mine.count));
    } else {
      p.reduce_from_all_and_send(input(mine.offset, mine.count), p.root());
    }
  }

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    Round now{};
    Round next = round_of(share, 0, p.ranks());
    for (size_t k = 1; now.begin < now.end || next.begin < next.end; ++k) {
      scatter_blocks(p, next);
      if (p.rank() == p.root()) gather_blocks(p, now);
      reduce_mine(p, block_of(next, p.rank()));
      now = next;
      next = round_of(share, k, p.ranks());
    }
  }
};

}  // namespace nitinol::algorithm
