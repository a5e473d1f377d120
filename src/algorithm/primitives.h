// The communication primitives that collective algorithms are written in.
//
//   rank A's program              connection A -> B (a queue of slots)             rank B's program
//   p.send(B, input(chunk))  ->   [slot][slot][slot][slot]                    ->   p.recv(A, output(chunk))
//
// Every ordered pair of ranks has, in each channel, one connection: a queue of a few slots that lies in the receiver's
// memory. A transfer takes elements from its sources (a span of the rank's own buffers, the oldest slot of one or of
// all incoming connections), combines them if there are several, and puts the result into its sinks (a span of the
// rank's own buffers, the next free slot of outgoing connections). It waits until all its source slots are filled and
// all its sink slots are free; then it frees the former and publishes the latter. So a channel is a network of
// sequential programs over bounded queues: its result, and whether it deadlocks, do not depend on timing (Kahn 1974),
// which is what lets the verifier prove an algorithm right by running it once.
//
// An executor may split each span over workers by position, with no barrier between a rank's transfers. So elements
// that are written belong to the same span in all transfers of the rank that touch them (the verifier checks it).
//
// An algorithm is a template over a class P that offers, through Verbs<P> below, these primitives plus rank(), ranks()
// and root(), and to rings any_order(): whether the result does not depend on the order of ranks. It knows no CUDA, no
// socket, no thread. All counts are elements; no transfer is longer than Share::chunk. Where P::kOneChunk holds, its
// shares are no longer than a chunk, so that nothing is left of the loops over chunks.
#pragma once

#include "model/plan.h"

namespace nitinol::algorithm {

/// Which of a rank's buffers. Reads of the input apply the reduction's scalar, reads of the output never do.
enum class Side : int { kInput, kOutput };

/// A run of elements in one of the rank's buffers.
struct Span {
  Side side = Side::kInput;
  size_t offset = 0;
  size_t count = 0;
};

NITINOL_HOST_DEVICE Span input(size_t offset, size_t count) { return Span{Side::kInput, offset, count}; }
NITINOL_HOST_DEVICE Span output(size_t offset, size_t count) { return Span{Side::kOutput, offset, count}; }

/// Which connections take part: none, that of one peer, those of all other ranks, those of all others but one.
enum class Peers : int { kNone, kOne, kAll, kAllBut };

/// Whether another rank's takes part; `one`: the peer of kOne, the excluded one of kAllBut.
NITINOL_HOST_DEVICE bool is_among(Peers kind, int one, int peer) {
  return kind == Peers::kAll || (kind == Peers::kOne && peer == one) || (kind == Peers::kAllBut && peer != one);
}

/// The shape of a transfer, known at compile time.
struct Flow {
  bool own = false;           ///< a source: the span Operands::own
  Peers from = Peers::kNone;  ///< further sources: incoming connections (kNone, kOne or kAll)
  bool into = false;          ///< a sink: the span Operands::into
  Peers to = Peers::kNone;    ///< further sinks: outgoing connections
  bool finish = false;        ///< the result is final: an average divides here
};

struct Operands {
  Span own{};
  Span into{};
  int from = -1;  ///< peer of Peers::kOne
  int to = -1;    ///< peer of Peers::kOne, or the excluded one of kAllBut
  size_t count = 0;
};

// Sources are combined in this order: with Peers::kAll by rank, the own span standing at the own rank (the canonical
// order); with Peers::kOne the incoming slot first, then the own span.

/// The rank `distance` steps after `rank`, around the end; distance <= ranks.
NITINOL_HOST_DEVICE int rank_after(int rank, int distance, int ranks) {
  const int sum = rank + distance;
  return sum < ranks ? sum : sum - ranks;
}
/// The rank `distance` steps before `rank`, around the end; distance <= ranks.
NITINOL_HOST_DEVICE int rank_before(int rank, int distance, int ranks) {
  const int difference = rank - distance;
  return difference < 0 ? difference + ranks : difference;
}

/// The distance, 1 <= distance < ranks, of the peer that comes as the `index`-th, from 1 on, where ranks visit all
/// others: each distance once, the first of them 1 + Share::turn.
NITINOL_HOST_DEVICE int distance_at(int index, int turn, int ranks) {
  const int distance = index + turn;
  return distance < ranks ? distance : distance - (ranks - 1);
}
/// The turn of a channel: all distances are first in about as many channels.
NITINOL_HOST_DEVICE int turn_of(int channel, int ranks) {
  return channel < ranks - 1 ? channel : channel % (ranks - 1);
}

/// Slots that each connection must have for every algorithm of the table to be free of deadlock (shown by the
/// verifier).
inline constexpr int kLeastSlots = 2;

/// The primitives by their textbook names. P derives from Verbs<P> and has `template <Flow> void transfer(Operands)`.
template <class P>
class Verbs {
 public:
  static constexpr bool kOneChunk = false;
  static constexpr bool kWholeChunks = true;  ///< a transfer begins only when all of a slot is filled

  NITINOL_HOST_DEVICE void copy(Span own, Span into) {
    self().template transfer<Flow{.own = true, .into = true}>({.own = own, .into = into, .count = own.count});
  }
  /// A reduction over one rank: the scalar still applies.
  NITINOL_HOST_DEVICE void reduce_alone(Span own, Span into) {
    self().template transfer<Flow{.own = true, .into = true, .finish = true}>(
        {.own = own, .into = into, .count = own.count});
  }

  NITINOL_HOST_DEVICE void send(int to, Span own) {
    self().template transfer<Flow{.own = true, .to = Peers::kOne}>({.own = own, .to = to, .count = own.count});
  }
  NITINOL_HOST_DEVICE void copy_and_send(Span own, Span into, int to) {
    self().template transfer<Flow{.own = true, .into = true, .to = Peers::kOne}>(
        {.own = own, .into = into, .to = to, .count = own.count});
  }
  NITINOL_HOST_DEVICE void push_to_all(Span own) {
    self().template transfer<Flow{.own = true, .to = Peers::kAll}>({.own = own, .count = own.count});
  }
  NITINOL_HOST_DEVICE void copy_and_push_to_all(Span own, Span into) {
    self().template transfer<Flow{.own = true, .into = true, .to = Peers::kAll}>(
        {.own = own, .into = into, .count = own.count});
  }

  NITINOL_HOST_DEVICE void recv(int from, Span into) {
    self().template transfer<Flow{.from = Peers::kOne, .into = true}>(
        {.into = into, .from = from, .count = into.count});
  }
  NITINOL_HOST_DEVICE void recv_and_send(int from, Span into, int to) {
    self().template transfer<Flow{.from = Peers::kOne, .into = true, .to = Peers::kOne}>(
        {.into = into, .from = from, .to = to, .count = into.count});
  }
  NITINOL_HOST_DEVICE void recv_and_push_to_all_but(int from, Span into, int but) {
    self().template transfer<Flow{.from = Peers::kOne, .into = true, .to = Peers::kAllBut}>(
        {.into = into, .from = from, .to = but, .count = into.count});
  }

  /// To each other rank its block, which lies `stride` elements behind that of the rank before; `first` is that of rank
  /// 0. The first rank to be sent to is that after `turn` others, as in distance_at().
  NITINOL_HOST_DEVICE void send_blocks(Span first, size_t stride, int turn) {
    for (int i = 1; i < self().ranks(); ++i) {
      const int peer = rank_after(self().rank(), distance_at(i, turn, self().ranks()), self().ranks());
      self().send(peer, Span{first.side, first.offset + peer * stride, first.count});
    }
  }
  /// From each other rank its block, in the same order the other way round.
  NITINOL_HOST_DEVICE void recv_blocks(Span first, size_t stride, int turn) {
    for (int i = 1; i < self().ranks(); ++i) {
      const int peer = rank_before(self().rank(), distance_at(i, turn, self().ranks()), self().ranks());
      self().recv(peer, Span{first.side, first.offset + peer * stride, first.count});
    }
  }

  NITINOL_HOST_DEVICE void recv_reduce(int from, Span own, Span into) {
    self().template transfer<Flow{.own = true, .from = Peers::kOne, .into = true}>(
        {.own = own, .into = into, .from = from, .count = own.count});
  }
  NITINOL_HOST_DEVICE void recv_reduce_finish(int from, Span own, Span into) {
    self().template transfer<Flow{.own = true, .from = Peers::kOne, .into = true, .finish = true}>(
        {.own = own, .into = into, .from = from, .count = own.count});
  }
  NITINOL_HOST_DEVICE void recv_reduce_send(int from, Span own, int to) {
    self().template transfer<Flow{.own = true, .from = Peers::kOne, .to = Peers::kOne}>(
        {.own = own, .from = from, .to = to, .count = own.count});
  }
  /// What is sent is the result.
  NITINOL_HOST_DEVICE void recv_reduce_send_final(int from, Span own, int to) {
    self().template transfer<Flow{.own = true, .from = Peers::kOne, .to = Peers::kOne, .finish = true}>(
        {.own = own, .from = from, .to = to, .count = own.count});
  }
  NITINOL_HOST_DEVICE void recv_reduce_finish_send(int from, Span own, Span into, int to) {
    self().template transfer<Flow{.own = true, .from = Peers::kOne, .into = true, .to = Peers::kOne, .finish = true}>(
        {.own = own, .into = into, .from = from, .to = to, .count = own.count});
  }

  NITINOL_HOST_DEVICE void reduce_from_all(Span own, Span into) {
    self().template transfer<Flow{.own = true, .from = Peers::kAll, .into = true, .finish = true}>(
        {.own = own, .into = into, .count = own.count});
  }
  NITINOL_HOST_DEVICE void reduce_from_all_and_push_to_all(Span own, Span into) {
    self().template transfer<Flow{.own = true, .from = Peers::kAll, .into = true, .to = Peers::kAll, .finish = true}>(
        {.own = own, .into = into, .count = own.count});
  }
  NITINOL_HOST_DEVICE void reduce_from_all_and_send(Span own, int to) {
    self().template transfer<Flow{.own = true, .from = Peers::kAll, .to = Peers::kOne, .finish = true}>(
        {.own = own, .to = to, .count = own.count});
  }

 private:
  NITINOL_HOST_DEVICE P& self() { return static_cast<P&>(*this); }
};

/// Chunks and blocks keep to multiples of so many elements (but for rests), so that they stay aligned if the share is.
inline constexpr size_t kGrain = 16;

/// The share with chunks made smaller so that its last round of `blocks` chunks is about as large as the others. As
/// many rounds as before, but the pipeline fills and drains faster. In steps of an eighth: workers move chunks in
/// batches, and what is left of a chunk after whole batches takes them longer than its size says.
NITINOL_HOST_DEVICE Share even_chunks(Share share, int blocks) {
  const size_t count = share.end - share.begin;
  const size_t round = share.chunk * blocks;
  if (count <= round) return share;
  const size_t rounds = (count + round - 1) / round;
  const size_t even = (count + rounds * blocks - 1) / (rounds * blocks);
  const size_t eighth = share.chunk / 8 / kGrain * kGrain;
  const size_t step = eighth < kGrain ? kGrain : eighth;
  const size_t chunk = (even + step - 1) / step * step;
  if (chunk < share.chunk) share.chunk = chunk;
  return share;
}

/// A run of elements within a rank's block.
struct Run {
  size_t offset = 0;
  size_t count = 0;
};

/// The k-th chunk of a share. Empty beyond the last.
NITINOL_HOST_DEVICE Run chunk_of(const Share& share, size_t k) {
  const size_t offset = share.begin + k * share.chunk;
  if (offset >= share.end) return Run{share.end, 0};
  return Run{offset, share.end - offset < share.chunk ? share.end - offset : share.chunk};
}
NITINOL_HOST_DEVICE size_t chunks_in(const Share& share) {
  return (share.end - share.begin + share.chunk - 1) / share.chunk;
}

/// Does `each` for all chunks of a share that is not empty, one after the other.
template <class P, class Each>
NITINOL_HOST_DEVICE void for_chunks(const Share& share, Each&& each) {
  if constexpr (P::kOneChunk) {
    each(Run{share.begin, share.end - share.begin});
  } else {
    const size_t chunks = chunks_in(share);
    for (size_t k = 0; k < chunks; ++k) each(chunk_of(share, k));
  }
}
/// For all chunks `push`, and `take` one chunk behind it: what the others push is on its way meanwhile.
template <class P, class Push, class Take>
NITINOL_HOST_DEVICE void for_chunks_ahead(const Share& share, Push&& push, Take&& take) {
  if constexpr (P::kOneChunk) {
    const Run all{share.begin, share.end - share.begin};
    push(all);
    take(all);
  } else {
    Run now{};
    Run next = chunk_of(share, 0);
    for (size_t k = 1; now.count + next.count > 0; ++k) {
      if (next.count > 0) push(next);
      if (now.count > 0) take(now);
      now = next;
      next = chunk_of(share, k);
    }
  }
}

/// A part of a share that is cut into blocks, one for each of some ranks: at most blocks * chunk elements, the last
/// round what is left, cut evenly.
struct Round {
  size_t begin = 0;
  size_t end = 0;
  size_t block = 0;  ///< elements of each block; the last ones may be shorter or empty
};
NITINOL_HOST_DEVICE size_t rounds_in(const Share& share, int blocks) {
  return (share.end - share.begin + share.chunk * blocks - 1) / (share.chunk * blocks);
}
/// Empty beyond the last.
NITINOL_HOST_DEVICE Round round_of(const Share& share, size_t k, int blocks) {
  const size_t begin = share.begin + k * share.chunk * blocks;
  if (begin >= share.end) return Round{share.end, share.end, share.chunk};
  const size_t left = share.end - begin;
  if (left >= share.chunk * blocks) return Round{begin, begin + share.chunk * blocks, share.chunk};
  const size_t block = ((left + blocks - 1) / blocks + kGrain - 1) / kGrain * kGrain;
  return Round{begin, share.end, block < share.chunk ? block : share.chunk};
}
NITINOL_HOST_DEVICE Run block_of(const Round& round, int index) {
  const size_t offset = round.begin + round.block * index;
  if (offset >= round.end) return Run{round.end, 0};
  return Run{offset, round.end - offset < round.block ? round.end - offset : round.block};
}

}  // namespace nitinol::algorithm
