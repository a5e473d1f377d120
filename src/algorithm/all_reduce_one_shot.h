// All-reduce in one step: everybody pushes its input to everybody, and each reduces what arrived in rank order.
// Moves (n-1) times the data per rank: for messages where latency is all.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct AllReduceOneShot {
  static constexpr Row row{.what = Collective::kAllReduce, .algorithm = Algorithm::kOneShot, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    for_chunks_ahead<P>(
        even_chunks(share, 1), [&](const Run& chunk) { p.push_to_all(input(chunk.offset, chunk.count)); },
        [&](const Run& chunk) {
          p.reduce_from_all(input(chunk.offset, chunk.count), output(chunk.offset, chunk.count));
        });
  }
};

}  // namespace nitinol::algorithm
