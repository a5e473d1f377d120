// Gather: every rank sends its block to the root, chunk by chunk.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct GatherOneShot {
  static constexpr Row row{.what = Collective::kGather, .algorithm = Algorithm::kOneShot, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void collect(P& p, const Share& share, const Run& chunk) {
    p.copy(input(chunk.offset, chunk.count), output(p.rank() * share.stride + chunk.offset, chunk.count));
    for (int distance = 1; distance < p.ranks(); ++distance) {
      const int peer = rank_after(p.rank(), distance, p.ranks());
      p.recv(peer, output(peer * share.stride + chunk.offset, chunk.count));
    }
  }

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const size_t chunks = chunks_in(share);
    for (size_t k = 0; k < chunks; ++k) {
      const Run chunk = chunk_of(share, k);
      if (p.rank() == p.root()) {
        collect(p, share, chunk);
      } else {
        p.send(p.root(), input(chunk.offset, chunk.count));
      }
    }
  }
};

}  // namespace nitinol::algorithm
