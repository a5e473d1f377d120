// All-reduce in two steps without a barrier between: a block of each round goes to the rank that reduces it, and the
// sum is pushed to everybody. The next round's blocks leave before this round's sums are awaited.
// In one chunk each connection carries two steps, which is why a rank without a block pushes nothing, but does push.
#pragma once

#include "algorithm/two_shot.h"

namespace nitinol::algorithm {

struct AllReduceTwoShot {
  static constexpr Row row{
      .what = Collective::kAllReduce, .algorithm = Algorithm::kTwoShot, .canonical = true, .apart = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& whole) {
    if constexpr (P::kOneChunk) {
      run_once(p, round_of(whole, 0, p.ranks()), whole.turn);
    } else {
      run_in_rounds(p, whole);
    }
  }

 private:
  template <class P>
  static NITINOL_HOST_DEVICE void run_once(P& p, const Round& round, int turn) {
    scatter_blocks(p, round, turn);
    const Run mine = block_of(round, p.rank());
    p.reduce_from_all_and_push_to_all(input(mine.offset, mine.count), output(mine.offset, mine.count));
    gather_blocks(p, round);
  }

  template <class P>
  static NITINOL_HOST_DEVICE void run_in_rounds(P& p, const Share& whole) {
    const Share share = even_chunks(whole, p.ranks());
    Round now{};
    Round next = round_of(share, 0, p.ranks());
    for (size_t k = 1; now.begin < now.end || next.begin < next.end; ++k) {
      scatter_blocks(p, next, share.turn);
      gather_blocks(p, now);
      const Run mine = block_of(next, p.rank());
      if (mine.count > 0) {
        p.reduce_from_all_and_push_to_all(input(mine.offset, mine.count), output(mine.offset, mine.count));
      }
      now = next;
      next = round_of(share, k, p.ranks());
    }
  }
};

}  // namespace nitinol::algorithm
