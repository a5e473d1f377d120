// Scatter: the root sends each rank its block, chunk by chunk.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct ScatterOneShot {
  static constexpr Row row{.what = Collective::kScatter, .algorithm = Algorithm::kOneShot, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void deal(P& p, const Share& share, const Run& chunk) {
    for (int distance = 1; distance < p.ranks(); ++distance) {
      const int peer = rank_after(p.rank(), distance, p.ranks());
      p.send(peer, input(peer * share.stride + chunk.offset, chunk.count));
    }
    p.copy(input(p.rank() * share.stride + chunk.offset, chunk.count), output(chunk.offset, chunk.count));
  }

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const size_t chunks = chunks_in(share);
    for (size_t k = 0; k < chunks; ++k) {
      const Run chunk = chunk_of(share, k);
      if (p.rank() == p.root()) {
        deal(p, share, chunk);
      } else {
        p.recv(p.root(), output(chunk.offset, chunk.count));
      }
    }
  }
};

}  // namespace nitinol::algorithm
