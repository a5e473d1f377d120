// Rings: data travels from each rank to its successor, so that every link is used once in each direction at a time.
// Sums of blocks are taken in an order that depends on the block, those for a root in the order of the ring.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct AllReduceRing {
  static constexpr Row row{.what = Collective::kAllReduce, .algorithm = Algorithm::kRing, .canonical = false};

  /// Each block goes around once and gathers all contributions; it ends with the rank whose index it has.
  template <class P>
  static NITINOL_HOST_DEVICE void reduce_around(P& p, const Round& round) {
    const int next = rank_after(p.rank(), 1, p.ranks());
    const int previous = rank_before(p.rank(), 1, p.ranks());
    const Run first = block_of(round, previous);
    if (first.count > 0) p.send(next, input(first.offset, first.count));
    for (int step = 2; step < p.ranks(); ++step) {
      const Run block = block_of(round, rank_before(p.rank(), step, p.ranks()));
      if (block.count > 0) p.recv_reduce_send(previous, input(block.offset, block.count), next);
    }
    const Run mine = block_of(round, p.rank());
    if (mine.count > 0) {
      p.recv_reduce_finish_send(previous, input(mine.offset, mine.count), output(mine.offset, mine.count), next);
    }
  }

  /// The results go around.
  template <class P>
  static NITINOL_HOST_DEVICE void pass_around(P& p, const Round& round) {
    const int next = rank_after(p.rank(), 1, p.ranks());
    const int previous = rank_before(p.rank(), 1, p.ranks());
    for (int step = 1; step < p.ranks() - 1; ++step) {
      const Run block = block_of(round, rank_before(p.rank(), step, p.ranks()));
      if (block.count > 0) p.recv_and_send(previous, output(block.offset, block.count), next);
    }
    const Run last = block_of(round, next);
    if (last.count > 0) p.recv(previous, output(last.offset, last.count));
  }

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const size_t rounds = rounds_in(share, p.ranks());
    for (size_t k = 0; k < rounds; ++k) {
      const Round round = round_of(share, k, p.ranks());
      reduce_around(p, round);
      pass_around(p, round);
    }
  }
};

struct ReduceScatterRing {
  static constexpr Row row{.what = Collective::kReduceScatter, .algorithm = Algorithm::kRing, .canonical = false};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const int n = p.ranks();
    const int next = rank_after(p.rank(), 1, n);
    const int previous = rank_before(p.rank(), 1, n);
    const size_t chunks = chunks_in(share);
    for (size_t k = 0; k < chunks; ++k) {
      const Run chunk = chunk_of(share, k);
      p.send(next, input(previous * share.stride + chunk.offset, chunk.count));
      for (int step = 2; step < n; ++step) {
        const int owner = rank_before(p.rank(), step, n);
        p.recv_reduce_send(previous, input(owner * share.stride + chunk.offset, chunk.count), next);
      }
      p.recv_reduce_finish(previous, input(p.rank() * share.stride + chunk.offset, chunk.count),
                           output(chunk.offset, chunk.count));
    }
  }
};

struct AllGatherRing {
  static constexpr Row row{.what = Collective::kAllGather, .algorithm = Algorithm::kRing, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const int n = p.ranks();
    const int next = rank_after(p.rank(), 1, n);
    const int previous = rank_before(p.rank(), 1, n);
    const size_t chunks = chunks_in(share);
    for (size_t k = 0; k < chunks; ++k) {
      const Run chunk = chunk_of(share, k);
      p.copy_and_send(input(chunk.offset, chunk.count), output(p.rank() * share.stride + chunk.offset, chunk.count),
                      next);
      for (int step = 1; step < n - 1; ++step) {
        const int owner = rank_before(p.rank(), step, n);
        p.recv_and_send(previous, output(owner * share.stride + chunk.offset, chunk.count), next);
      }
      p.recv(previous, output(next * share.stride + chunk.offset, chunk.count));
    }
  }
};

struct BroadcastRing {
  static constexpr Row row{.what = Collective::kBroadcast, .algorithm = Algorithm::kRing, .canonical = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const int next = rank_after(p.rank(), 1, p.ranks());
    const int previous = rank_before(p.rank(), 1, p.ranks());
    const Share even = even_chunks(share, 1);
    const size_t chunks = chunks_in(even);
    for (size_t k = 0; k < chunks; ++k) {
      const Run chunk = chunk_of(even, k);
      const Span out = output(chunk.offset, chunk.count);
      if (p.rank() == p.root()) {
        p.copy_and_send(input(chunk.offset, chunk.count), out, next);
      } else if (next == p.root()) {
        p.recv(previous, out);
      } else {
        p.recv_and_send(previous, out, next);
      }
    }
  }
};

/// Whether a reduce in a ring begins with its root, to which the last rank passes the sum on: as those do that add in
/// rank order for one of the first two ranks.
NITINOL_HOST_DEVICE constexpr bool comes_back(int root, int ranks, bool any_order) {
  return !any_order && root < 2 && root != ranks - 1;
}
/// Whether the first two ranks change places in it, so that it may begin with rank 1: a sum of two is the same either
/// way.
NITINOL_HOST_DEVICE constexpr bool changes_places(int root, int ranks, bool any_order) {
  return root == 1 && comes_back(root, ranks, any_order);
}

/// A chain that ends with the root, each rank adding its own on the way. Where any order is right it begins with the
/// rank after the root, whichever that is. Else it does so for roots but the first two ranks, which begin it themselves
/// and to which it comes back. So it adds in rank order for the first two ranks and the last.
struct ReduceRing {
  static constexpr Row row{
      .what = Collective::kReduce, .algorithm = Algorithm::kRing, .canonical = false, .canonical_to_ends = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const Share even = even_chunks(share, 1);
    const bool around = comes_back(p.root(), p.ranks(), p.any_order());
    if (p.rank() == (around ? p.root() : rank_after(p.root(), 1, p.ranks()))) {
      begin(p, even, around);
    } else {
      add(p, even, around);
    }
  }

 private:
  /// The place of a rank, and the rank at a place.
  static NITINOL_HOST_DEVICE int exchanged(int rank, bool changes) { return changes && rank < 2 ? 1 - rank : rank; }
  template <class P>
  static NITINOL_HOST_DEVICE int next_of(const P& p) {
    const bool changes = changes_places(p.root(), p.ranks(), p.any_order());
    return exchanged(rank_after(exchanged(p.rank(), changes), 1, p.ranks()), changes);
  }
  template <class P>
  static NITINOL_HOST_DEVICE int previous_of(const P& p) {
    const bool changes = changes_places(p.root(), p.ranks(), p.any_order());
    return exchanged(rank_before(exchanged(p.rank(), changes), 1, p.ranks()), changes);
  }

  /// So many chunks are under way while a root that began sends one more: with that as many as there is room for. Where
  /// ranks pass on what has arrived of a chunk already, one for each of the others: between 4 GPUs reduce of 64 MB took
  /// 219 us with 3, 244 with 8.
  template <class P>
  static NITINOL_HOST_DEVICE size_t chunks_under_way(const P& p) {
    const auto ranks = static_cast<size_t>(p.ranks());
    return P::kWholeChunks ? kLeastSlots * ranks - 1 : ranks - 1;
  }

  template <class P>
  static NITINOL_HOST_DEVICE void begin(P& p, const Share& share, bool around) {
    const int next = next_of(p);
    const size_t ahead = chunks_under_way(p);
    const size_t chunks = chunks_in(share);
    for (size_t k = 0; k < chunks + (around ? ahead : 0); ++k) {
      const Run chunk = chunk_of(share, k);
      if (chunk.count > 0) p.send(next, input(chunk.offset, chunk.count));
      if (!around || k < ahead) continue;
      const Run sum = chunk_of(share, k - ahead);
      p.recv(p.ranks() - 1, output(sum.offset, sum.count));
    }
  }

  template <class P>
  static NITINOL_HOST_DEVICE void add(P& p, const Share& share, bool around) {
    const int next = next_of(p);
    const int previous = previous_of(p);
    const size_t chunks = chunks_in(share);
    for (size_t k = 0; k < chunks; ++k) {
      const Run chunk = chunk_of(share, k);
      const Span in = input(chunk.offset, chunk.count);
      if (p.rank() == p.root()) {
        p.recv_reduce_finish(previous, in, output(chunk.offset, chunk.count));
      } else if (around && next == p.root()) {
        p.recv_reduce_send_final(previous, in, next);
      } else {
        p.recv_reduce_send(previous, in, next);
      }
    }
  }
};

}  // namespace nitinol::algorithm
