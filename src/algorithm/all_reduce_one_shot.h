// All-reduce in one step: everybody pushes its input to everybody, and each reduces what arrived in rank order.
// Moves (n-1) times the data per rank: for messages where latency is all.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct AllReduceOneShot {
  static constexpr Row row{.what = Collective::kAllReduce, .algorithm = Algorithm::kOneShot, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& whole) {
    const Share share = even_chunks(whole, 1);
    Run now{};
    Run next = chunk_of(share, 0);
    for (size_t k = 1; now.count + next.count > 0; ++k) {
      if (next.count > 0) p.push_to_all(input(next.offset, next.count));
      if (now.count > 0) p.reduce_from_all(input(now.offset, now.count), output(now.offset, now.count));
      now = next;
      next = chunk_of(share, k);
    }
  }
};

}  // namespace nitinol::algorithm
