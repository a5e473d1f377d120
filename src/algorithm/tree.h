// Binary trees, the root's position being that of the operation's root (or rank 0): few messages, O(log n) deep, for many
// ranks that share few processors. Sums are taken in tree order, so they reduce only what is order-free, or on request.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

/// A rank's neighbours in a binary heap over the ranks, turned so that `root` stands on top. -1: none.
struct TreePlace {
  int parent = -1;
  int child[2] = {-1, -1};
};
NITINOL_HOST_DEVICE TreePlace tree_place(int rank, int root, int ranks) {
  const int position = rank_before(rank, root, ranks);
  TreePlace place;
  if (position > 0) place.parent = rank_after((position - 1) / 2, root, ranks);
  for (int side = 0; side < 2; ++side) {
    const int child = 2 * position + 1 + side;
    if (child < ranks) place.child[side] = rank_after(child, root, ranks);
  }
  return place;
}

struct AllReduceTree {
  static constexpr Row row{.what = Collective::kAllReduce, .algorithm = Algorithm::kTree, .canonical = false};

  /// Combines the own input with what the children send; the result goes to the parent or, on top, into the output.
  template <class P>
  static NITINOL_HOST_DEVICE void reduce_up(P& p, const TreePlace& place, const Run& chunk) {
    const Span in = input(chunk.offset, chunk.count);
    const Span out = output(chunk.offset, chunk.count);
    const bool top = place.parent < 0;
    if (place.child[0] < 0) {
      p.send(place.parent, in);
    } else if (place.child[1] < 0) {
      if (top) {
        p.recv_reduce_finish(place.child[0], in, out);
      } else {
        p.recv_reduce_send(place.child[0], in, place.parent);
      }
    } else {
      p.recv_reduce(place.child[0], in, out);
      if (top) {
        p.recv_reduce_finish(place.child[1], out, out);
      } else {
        p.recv_reduce_send(place.child[1], out, place.parent);
      }
    }
  }

  template <class P>
  static NITINOL_HOST_DEVICE void pass_down(P& p, const TreePlace& place, const Run& chunk) {
    const Span out = output(chunk.offset, chunk.count);
    if (place.parent >= 0) p.recv(place.parent, out);
    for (int side = 0; side < 2; ++side) {
      if (place.child[side] >= 0) p.send(place.child[side], out);
    }
  }

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const TreePlace place = tree_place(p.rank(), 0, p.ranks());
    const size_t chunks = chunks_in(share);
    Run now = chunk_of(share, 0);
    reduce_up(p, place, now);
    for (size_t k = 0; k < chunks; ++k) {
      const Run next = chunk_of(share, k + 1);
      if (next.count > 0) reduce_up(p, place, next);
      pass_down(p, place, now);
      now = next;
    }
  }
};

struct BroadcastTree {
  static constexpr Row row{.what = Collective::kBroadcast, .algorithm = Algorithm::kTree, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const TreePlace place = tree_place(p.rank(), p.root(), p.ranks());
    const size_t chunks = chunks_in(share);
    for (size_t k = 0; k < chunks; ++k) {
      const Run chunk = chunk_of(share, k);
      const Span out = output(chunk.offset, chunk.count);
      if (place.parent < 0) {
        p.copy(input(chunk.offset, chunk.count), out);
      } else {
        p.recv(place.parent, out);
      }
      for (int side = 0; side < 2; ++side) {
        if (place.child[side] >= 0) p.send(place.child[side], out);
      }
    }
  }
};

}  // namespace nitinol::algorithm
