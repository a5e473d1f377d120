// All-gather: every rank pushes its block to all others, chunk by chunk.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct AllGatherOneShot {
  static constexpr Row row{
      .what = Collective::kAllGather, .algorithm = Algorithm::kOneShot, .canonical = true, .apart = true};

  template <class P>
  static NITINOL_HOST_DEVICE void push_chunk(P& p, const Share& share, const Run& chunk) {
    p.copy_and_push_to_all(input(chunk.offset, chunk.count),
                           output(p.rank() * share.stride + chunk.offset, chunk.count));
  }

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& whole) {
    const Share share = even_chunks(whole, 1);
    Run now{};
    Run next = chunk_of(share, 0);
    for (size_t k = 1; now.count + next.count > 0; ++k) {
      if (next.count > 0) push_chunk(p, share, next);
      for (int distance = 1; now.count > 0 && distance < p.ranks(); ++distance) {
        const int peer = rank_before(p.rank(), distance, p.ranks());
        p.recv(peer, output(peer * share.stride + now.offset, now.count));
      }
      now = next;
      next = chunk_of(share, k);
    }
  }
};

}  // namespace nitinol::algorithm
