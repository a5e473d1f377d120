// Reduce-scatter: every rank pushes to each other rank that rank's block, chunk by chunk, and reduces its own in rank
// order.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct ReduceScatterOneShot {
  static constexpr Row row{
      .what = Collective::kReduceScatter, .algorithm = Algorithm::kOneShot, .canonical = true, .apart = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    for_chunks_ahead<P>(
        even_chunks(share, 1),
        [&](const Run& chunk) { p.send_blocks(input(chunk.offset, chunk.count), share.stride, share.turn); },
        [&](const Run& chunk) {
          p.reduce_from_all(input(p.rank() * share.stride + chunk.offset, chunk.count),
                            output(chunk.offset, chunk.count));
        });
  }
};

}  // namespace nitinol::algorithm
