// Binary trees, the root's position being that of the operation's root (or rank 0): few messages, O(log n) deep, for
// many ranks that share few processors. Sums are taken in tree order, so they reduce only what is order-free, or on
// request.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

/// A rank's neighbours in a binary heap over the ranks, turned so that `root` stands on top. -1: none.
struct TreePlace {
  int level = 0;  ///< 0: on top
  int parent = -1;
  int child[2] = {-1, -1};
};
NITINOL_HOST_DEVICE TreePlace tree_place(int rank, int root, int ranks) {
  const int position = rank_before(rank, root, ranks);
  TreePlace place;
  while ((position + 1) >> (place.level + 1) > 0) ++place.level;
  if (position > 0) place.parent = rank_after((position - 1) / 2, root, ranks);
  for (int side = 0; side < 2; ++side) {
    const int child = 2 * position + 1 + side;
    if (child < ranks) place.child[side] = rank_after(child, root, ranks);
  }
  return place;
}

/// From the output to the children.
template <class P>
NITINOL_HOST_DEVICE void pass_down(P& p, const TreePlace& place, const Span& out) {
  for (int side = 0; side < 2; ++side) {
    if (place.child[side] >= 0) p.send(place.child[side], out);
  }
}

/// From the parent into the output and to the children.
template <class P>
NITINOL_HOST_DEVICE void pass_on_down(P& p, const TreePlace& place, const Span& out) {
  if (place.child[0] < 0) {
    p.recv(place.parent, out);
    return;
  }
  p.recv_and_send(place.parent, out, place.child[0]);
  if (place.child[1] >= 0) p.send(place.child[1], out);
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
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const TreePlace place = tree_place(p.rank(), 0, p.ranks());
    const Share even = even_chunks(share, 1);
    const size_t chunks = chunks_in(even);
    // Sums come back later the lower a rank stands: it sends one more chunk up per level before it waits for one to
    // come down, so that no rank's way up waits for its own way down.
    const size_t ahead = place.level;
    for (size_t k = 0; k < chunks + ahead; ++k) {
      if (k < chunks) reduce_up(p, place, chunk_of(even, k));
      if (k < ahead) continue;
      const Run done = chunk_of(even, k - ahead);
      const Span out = output(done.offset, done.count);
      if (place.parent < 0) {
        pass_down(p, place, out);
      } else {
        pass_on_down(p, place, out);
      }
    }
  }
};

struct BroadcastTree {
  static constexpr Row row{.what = Collective::kBroadcast, .algorithm = Algorithm::kTree, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const TreePlace place = tree_place(p.rank(), p.root(), p.ranks());
    const Share even = even_chunks(share, 1);
    const size_t chunks = chunks_in(even);
    for (size_t k = 0; k < chunks; ++k) {
      const Run chunk = chunk_of(even, k);
      const Span out = output(chunk.offset, chunk.count);
      if (place.parent < 0) {
        p.copy_and_send(input(chunk.offset, chunk.count), out, place.child[0]);
        if (place.child[1] >= 0) p.send(place.child[1], out);
      } else {
        pass_on_down(p, place, out);
      }
    }
  }
};

}  // namespace nitinol::algorithm
