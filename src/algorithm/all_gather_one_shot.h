// All-gather: every rank pushes its block to all others, chunk by chunk.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct AllGatherOneShot {
  static constexpr Row row{
      .what = Collective::kAllGather, .algorithm = Algorithm::kOneShot, .canonical = true, .apart = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    for_chunks_ahead<P>(
        even_chunks(share, 1),
        [&](const Run& chunk) {
          p.copy_and_push_to_all(input(chunk.offset, chunk.count),
                                 output(p.rank() * share.stride + chunk.offset, chunk.count));
        },
        [&](const Run& chunk) { p.recv_blocks(output(chunk.offset, chunk.count), share.stride, 0); });
  }
};

}  // namespace nitinol::algorithm
