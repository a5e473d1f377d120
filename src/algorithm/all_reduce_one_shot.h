// All-reduce in one step: everybody pushes its input to everybody, and each reduces what arrived in rank order.
// Moves (n-1) times the data per rank: for messages where latency is all.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct AllReduceOneShot {
  static constexpr Row row{.what = Collective::kAllReduce, .algorithm = Algorithm::kOneShot, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const size_t chunks = chunks_in(share);
    Run next = chunk_of(share, 0);
    p.push_to_all(input(next.offset, next.count));
    for (size_t k = 0; k < chunks; ++k) {
      const Run now = next;
      next = chunk_of(share, k + 1);
      if (next.count > 0) p.push_to_all(input(next.offset, next.count));
      p.reduce_from_all(input(now.offset, now.count), output(now.offset, now.count));
    }
  }
};

}  // namespace nitinol::algorithm
