// All-to-all: every rank pushes to each other rank the block meant for it, chunk by chunk.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct AllToAllOneShot {
  static constexpr Row row{
      .what = Collective::kAllToAll, .algorithm = Algorithm::kOneShot, .canonical = true, .apart = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    for_chunks_ahead<P>(
        even_chunks(share, 1),
        [&](const Run& chunk) {
          p.send_blocks(input(chunk.offset, chunk.count), share.stride, share.turn);
          const size_t mine = p.rank() * share.stride + chunk.offset;
          p.copy(input(mine, chunk.count), output(mine, chunk.count));
        },
        [&](const Run& chunk) { p.recv_blocks(output(chunk.offset, chunk.count), share.stride, share.turn); });
  }
};

}  // namespace nitinol::algorithm
