// Broadcast in one step: the root pushes its data to everybody.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct BroadcastOneShot {
  static constexpr Row row{.what = Collective::kBroadcast, .algorithm = Algorithm::kOneShot, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    for_chunks<P>(even_chunks(share, 1), [&](const Run& chunk) {
      if (p.rank() == p.root()) {
        p.copy_and_push_to_all(input(chunk.offset, chunk.count), output(chunk.offset, chunk.count));
      } else {
        p.recv(p.root(), output(chunk.offset, chunk.count));
      }
    });
  }
};

}  // namespace nitinol::algorithm
