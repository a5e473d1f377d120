// Scatter: the root sends each rank its block, chunk by chunk.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct ScatterOneShot {
  static constexpr Row row{.what = Collective::kScatter, .algorithm = Algorithm::kOneShot, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    for_chunks<P>(share, [&](const Run& chunk) {
      if (p.rank() == p.root()) {
        p.send_blocks(input(chunk.offset, chunk.count), share.stride, 0);
        const size_t mine = p.rank() * share.stride + chunk.offset;
        p.copy(input(mine, chunk.count), output(chunk.offset, chunk.count));
      } else {
        p.recv(p.root(), output(chunk.offset, chunk.count));
      }
    });
  }
};

}  // namespace nitinol::algorithm
