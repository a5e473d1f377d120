// Rings: data travels from each rank to its successor, so that every link is used once in each direction at a time.
// Sums are taken in an order that depends on the block, so rings reduce only what is order-free, or on request.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

struct AllReduceRing {
  static constexpr Row row{.what = Collective::kAllReduce, .algorithm = Algorithm::kRing, .canonical = false};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    const int n = p.ranks();
    const int next = rank_after(p.rank(), 1, n);
    const int previous = rank_before(p.rank(), 1, n);
    const size_t rounds = rounds_in(share, n);
    for (size_t k = 0; k < rounds; ++k) {
      const Run first = block_of(share, k, previous, n);
      if (first.count > 0) p.send(next, input(first.offset, first.count));
      for (int step = 2; step < n; ++step) {
        const Run block = block_of(share, k, rank_before(p.rank(), step, n), n);
        if (block.count > 0) p.recv_reduce_send(previous, input(block.offset, block.count), next);
      }
      const Run mine = block_of(share, k, p.rank(), n);
      if (mine.count > 0) {
        p.recv_reduce_finish_send(previous, input(mine.offset, mine.count), output(mine.offset, mine.count), next);
      }
      for (int step = 1; step < n - 1; ++step) {
        const Run block = block_of(share, k, rank_before(p.rank(), step, n), n);
        if (block.count > 0) p.recv_and_send(previous, output(block.offset, block.count), next);
      }
      const Run last = block_of(share, k, next, n);
      if (last.count > 0) p.recv(previous, output(last.offset, last.count));
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
      p.send(next, input(chunk.offset, chunk.count));
      p.copy(input(chunk.offset, chunk.count), output(p.rank() * share.stride + chunk.offset, chunk.count));
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
    const int n = p.ranks();
    const int next = rank_after(p.rank(), 1, n);
    const int previous = rank_before(p.rank(), 1, n);
    const size_t chunks = chunks_in(share);
    for (size_t k = 0; k < chunks; ++k) {
      const Run chunk = chunk_of(share, k);
      if (p.rank() == p.root()) {
        p.send(next, input(chunk.offset, chunk.count));
        p.copy(input(chunk.offset, chunk.count), output(chunk.offset, chunk.count));
      } else if (next == p.root()) {
        p.recv(previous, output(chunk.offset, chunk.count));
      } else {
        p.recv_and_send(previous, output(chunk.offset, chunk.count), next);
      }
    }
  }
};

}  // namespace nitinol::algorithm
