// All-to-all: every rank pushes to each other rank the block meant for it, chunk by chunk.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct AllToAllOneShot {
  static constexpr Row row{
      .what = Collective::kAllToAll, .algorithm = Algorithm::kOneShot, .canonical = true, .apart = true};

  template <class P>
  static NITINOL_HOST_DEVICE void push_chunk(P& p, const Share& share, const Run& chunk) {
    for (int i = 1; i < p.ranks(); ++i) {
      const int peer = rank_after(p.rank(), distance_at(i, share.turn, p.ranks()), p.ranks());
      p.send(peer, input(peer * share.stride + chunk.offset, chunk.count));
    }
    const size_t mine = p.rank() * share.stride + chunk.offset;
    p.copy(input(mine, chunk.count), output(mine, chunk.count));
  }

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& whole) {
    const Share share = even_chunks(whole, 1);
    Run now{};
    Run next = chunk_of(share, 0);
    for (size_t k = 1; now.count + next.count > 0; ++k) {
      if (next.count > 0) push_chunk(p, share, next);
      for (int i = 1; now.count > 0 && i < p.ranks(); ++i) {
        const int peer = rank_before(p.rank(), distance_at(i, share.turn, p.ranks()), p.ranks());
        p.recv(peer, output(peer * share.stride + now.offset, now.count));
      }
      now = next;
      next = chunk_of(share, k);
    }
  }
};

}  // namespace nitinol::algorithm
