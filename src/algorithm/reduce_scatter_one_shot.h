// Reduce-scatter: every rank pushes to each other rank that rank's block, chunk by chunk, and reduces its own in rank
// order.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct ReduceScatterOneShot {
  static constexpr Row row{
      .what = Collective::kReduceScatter, .algorithm = Algorithm::kOneShot, .canonical = true, .apart = true};

  template <class P>
  static NITINOL_HOST_DEVICE void push_chunk(P& p, const Share& share, const Run& chunk) {
    for (int i = 1; i < p.ranks(); ++i) {
      const int peer = rank_after(p.rank(), distance_at(i, share.turn, p.ranks()), p.ranks());
      p.send(peer, input(peer * share.stride + chunk.offset, chunk.count));
    }
  }

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& whole) {
    const Share share = even_chunks(whole, 1);
    Run now{};
    Run next = chunk_of(share, 0);
    for (size_t k = 1; now.count + next.count > 0; ++k) {
      if (next.count > 0) push_chunk(p, share, next);
      if (now.count > 0) {
        p.reduce_from_all(input(p.rank() * share.stride + now.offset, now.count), output(now.offset, now.count));
      }
      now = next;
      next = chunk_of(share, k);
    }
  }
};

}  // namespace nitinol::algorithm
