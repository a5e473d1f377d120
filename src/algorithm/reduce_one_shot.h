// Reduce in one step: everybody pushes its input to the root, which reduces in rank order.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct ReduceOneShot {
  static constexpr Row row{.what = Collective::kReduce, .algorithm = Algorithm::kOneShot, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    for_chunks<P>(even_chunks(share, 1), [&](const Run& chunk) {
      if (p.rank() == p.root()) {
        p.reduce_from_all(input(chunk.offset, chunk.count), output(chunk.offset, chunk.count));
      } else {
        p.send(p.root(), input(chunk.offset, chunk.count));
      }
    });
  }
};

}  // namespace nitinol::algorithm
