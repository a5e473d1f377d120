// Gather: every rank sends its block to the root, chunk by chunk.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct GatherOneShot {
  static constexpr Row row{.what = Collective::kGather, .algorithm = Algorithm::kOneShot, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    for_chunks<P>(share, [&](const Run& chunk) {
      if (p.rank() == p.root()) {
        p.copy(input(chunk.offset, chunk.count), output(p.rank() * share.stride + chunk.offset, chunk.count));
        p.recv_blocks(output(chunk.offset, chunk.count), share.stride, 0);
      } else {
        p.send(p.root(), input(chunk.offset, chunk.count));
      }
    });
  }
};

}  // namespace nitinol::algorithm
