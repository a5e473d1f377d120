// Rings: data travels from each rank to its successor, so that every link is used once in each direction at a time.
// Sums are taken in an order that depends on the block, so rings reduce only what is order-free, or on request.
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

/// A chain that ends with the root, each rank adding its own on the way.
struct ReduceRing {
  static constexpr Row row{.what = Collective::kReduce, .algorithm = Algorithm::kRing, .canonical = false};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const int next = rank_after(p.rank(), 1, p.ranks());
    const int previous = rank_before(p.rank(), 1, p.ranks());
    const Share even = even_chunks(share, 1);
    const size_t chunks = chunks_in(even);
    for (size_t k = 0; k < chunks; ++k) {
      const Run chunk = chunk_of(even, k);
      const Span in = input(chunk.offset, chunk.count);
      if (p.rank() == p.root()) {
        p.recv_reduce_finish(previous, in, output(chunk.offset, chunk.count));
      } else if (previous == p.root()) {
        p.send(next, in);
      } else {
        p.recv_reduce_send(previous, in, next);
      }
    }
  }
};

}  // namespace nitinol::algorithm
