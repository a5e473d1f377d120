// The communication primitives of brief operations on aligned buffers, in as few instructions as possible: a kernel
// that exchanges a kilobyte takes as long as those take one after the other. What else there is (buffers that begin
// anywhere, rests of vectors, scalars, averages) has kernels of its own, with the same connections: calls of functions
// for it would have registers spilled on the way.
#pragma once

#include "executor/cuda/brief_connections.h"
#include "executor/cuda/combination.h"
#include "executor/cuda/user_memory.h"

namespace nitinol::cuda {

using algorithm::Peers;
using algorithm::Round;
using algorithm::Side;
using algorithm::Span;

/// kBounds: of the buffers and their blocks. By LL all that does not cut words is the same.
template <class Wire, DataType type, Combiner with, uint32_t steps, Bounds kBounds>
class BriefWorker : public BriefConnections<Wire, steps> {
 public:
  static constexpr bool kRehearses = true;
  using Connections = BriefConnections<Wire, steps>;

  __device__ __forceinline__ BriefWorker(const QueueView& queue, int channel) : Connections(queue, channel) {}

  __device__ __forceinline__ void begin(const Work& work, int index) {
    this->work_ = index;
    this->begin_call(work.mark);
    input_ = work.input;
    output_ = work.output;
    root_ = work.root;
    if constexpr (with != Combiner::kNone) combination_.begin(work);
  }
  __device__ __forceinline__ int root() const { return root_; }
  /// Whether it moves data, or only goes through the instructions.
  __device__ __forceinline__ void be(bool live) { live_ = live; }

  // The primitives of the algorithms that brief operations go by, as algorithm::Verbs has them.

  __device__ __forceinline__ void copy(Span own, Span into) { push<Peers::kNone>(own, at(into)); }
  __device__ __forceinline__ void push_to_all(Span own) { push<Peers::kAll>(own, nullptr); }
  __device__ __forceinline__ void copy_and_push_to_all(Span own, Span into) { push<Peers::kAll>(own, at(into)); }

  __device__ __forceinline__ void reduce_from_all(Span own, Span into) {
    const char* const from = at(own);
    char* const to = at(into);
    const uint32_t bytes = bytes_of_span(own);
    if constexpr (Connections::kTwoSteps) {
      reduce_and_pass_on<Peers::kNone>(from, to, bytes);
    } else if constexpr (Wire::kPerWarp) {
      reduce<Wire::kFlight, Peers::kNone>(from, to, bytes);
    } else if (this->ranks() == 2) {
      reduce<2, Peers::kNone>(from, to, bytes);
    } else if (this->ranks() <= 4) {
      reduce<4, Peers::kNone>(from, to, bytes);
    } else {
      reduce<8, Peers::kNone>(from, to, bytes);
    }
  }
  __device__ __forceinline__ void reduce_from_all_and_push_to_all(Span own, Span into) {
    reduce_and_pass_on<Peers::kAll>(at(own), at(into), bytes_of_span(own));
  }
  __device__ __forceinline__ void reduce_from_all_and_send(Span own, int) {
    reduce_and_pass_on<Peers::kOne>(at(own), nullptr, bytes_of_span(own));
  }

  __device__ __forceinline__ void send_blocks(Span first, size_t stride, int) {
    send_all(at(first), {stride * E::kSize, bytes_of_span(first), kNoEnd});
  }
  __device__ __forceinline__ void recv_blocks(Span first, size_t stride, int) {
    recv_all(at(first), {stride * E::kSize, bytes_of_span(first), kNoEnd});
  }
  __device__ __forceinline__ void send_input_blocks(const Round& round) {
    send_all(input_ + round.begin * E::kSize, blocks_of(round));
  }
  __device__ __forceinline__ void recv_output_blocks(const Round& round) {
    recv_all(output_ + round.begin * E::kSize, blocks_of(round));
  }

 private:
  using E = Elements<type>;
  using Memory = UserMemory<Wire>;
  using Raw = typename Wire::Raw;
  static constexpr int kFlight = Wire::kFlight;
  static constexpr int kElements = E::template kCount<Wire::kWords>;

  __device__ __forceinline__ char* at(const Span& span) const {
    return (span.side == Side::kInput ? const_cast<char*>(input_) : output_) + span.offset * E::kSize;
  }
  __device__ __forceinline__ static uint32_t bytes_of_span(const Span& span) {
    return static_cast<uint32_t>(span.count) * E::kSize;
  }
  __device__ __forceinline__ int peer_at(int distance) const {
    return algorithm::rank_after(this->rank(), distance, this->ranks());
  }
  /// Bit r: there is a rank first + r, and it is not this one.
  template <int kRanks>
  __device__ __forceinline__ uint32_t peers_from(int first) const {
    const uint32_t there = (1U << min(this->ranks() - first, kRanks)) - 1;
    const int own = this->rank() - first;
    return own >= 0 && own < kRanks ? there & ~(1U << own) : there;
  }

  __device__ __forceinline__ static uint32_t units_in(uint32_t bytes) {
    return (bytes + Wire::kShape.bytes - 1) / Wire::kShape.bytes;
  }
  /// Each unit of this thread (warp), unless one before was given up.
  template <class Each>
  __device__ __forceinline__ void for_units(uint32_t bytes, Each&& each) {
    const uint32_t first = Wire::kPerWarp ? this->warp_ : threadIdx.x;
    const uint32_t units = live_ ? units_in(bytes) : first + 1;
    const uint32_t apart = Wire::kPerWarp ? blockDim.x / 32 : blockDim.x;
#pragma unroll 1
    for (uint32_t unit = first; unit < units && !this->aborted_; unit += apart) each(unit);
    if constexpr (Wire::kPerWarp) __syncwarp();
  }
  /// One block for each rank, by rank, in a buffer. In bytes.
  struct Blocks {
    size_t apart;
    uint32_t bytes;
    uint32_t end;  ///< of the last one, which may be shorter than the others, or missing
  };
  static constexpr uint32_t kNoEnd = ~0U;
  __device__ __forceinline__ static Blocks blocks_of(const Round& round) {
    return {round.block * E::kSize, static_cast<uint32_t>(round.block) * E::kSize,
            static_cast<uint32_t>(round.end - round.begin) * E::kSize};
  }
  /// Each unit of this thread (warp) of all blocks but the rank's own, unless one before was given up: by threads one
  /// block after the other, so that a warp stores to one peer; by warps the first units of all blocks first. `each` is
  /// told where the block begins and how long it is.
  template <class Each>
  __device__ __forceinline__ void for_blocks(const Blocks& blocks, Each&& each) {
    const auto peers = static_cast<uint32_t>(this->ranks() - 1);
    const uint32_t first = Wire::kPerWarp ? this->warp_ : threadIdx.x;
    const uint32_t units = units_in(blocks.bytes);
    const uint32_t end = live_ ? units * peers : first + 1;
#pragma unroll 1
    for (uint32_t i = first; i < end && !this->aborted_; i += Wire::kPerWarp ? blockDim.x / 32 : blockDim.x) {
      uint32_t unit = i;
      uint32_t turn = 0;
      if (peers > 1) {  // else the division would take as long as what is stored
        turn = Wire::kPerWarp ? i % peers : i / max(units, 1U);
        unit = Wire::kPerWarp ? i / peers : i - turn * units;
      }
      const int peer = peer_at(static_cast<int>(turn) + 1);
      const size_t begin = peer * blocks.apart;
      uint32_t bytes = blocks.bytes;
      if (blocks.end != kNoEnd) bytes = begin < blocks.end ? min(bytes, blocks.end - static_cast<uint32_t>(begin)) : 0;
      if (unit * Wire::kShape.bytes < bytes || !live_) each(peer, begin, bytes, unit);
    }
    if constexpr (Wire::kPerWarp) __syncwarp();
  }
  /// Whether a thread would have to wait for several units one after the other. Then it is better to wait for those of
  /// several blocks at a time: else through host memory all-gather of 8 to 32 KB between 4 GPUs took 1.15 to 1.2 times
  /// as long.
  __device__ __forceinline__ bool needs_flights(const Blocks& blocks) const {
    const uint32_t units = (blocks.bytes + Wire::kShape.bytes - 1) / Wire::kShape.bytes;
    return !Wire::kPerWarp && units * static_cast<uint32_t>(this->ranks() - 1) > blockDim.x;
  }
  /// Of blocks that are all as long, as those by LL are.
  __device__ __forceinline__ void recv_in_flights(char* to, const Blocks& blocks) {
    for_units(blocks.bytes, [&](uint32_t unit) {
#pragma unroll 1
      for (int rank = 0; rank < this->ranks(); rank += kFlight) {
        const uint32_t wanted = peers_from<kFlight>(rank);
        Raw raw[kFlight];
        if (!fetch(rank, wanted, unit, raw)) return;
#pragma unroll
        for (int f = 0; f < kFlight; ++f) {
          if ((wanted >> f & 1U) != 0) store(to + (rank + f) * blocks.apart, blocks.bytes, unit, raw[f]);
        }
      }
    });
  }
  __device__ __forceinline__ void send_all(const char* from, const Blocks& blocks) {
    for_blocks(blocks, [&](int peer, size_t begin, uint32_t bytes, uint32_t unit) {
      uint32_t words[Wire::kWords];
      load(from + begin, bytes, unit, words);
      put(peer, unit, words);
    });
  }
  __device__ __forceinline__ void recv_all(char* to, const Blocks& blocks) {
    if constexpr (!Wire::kPerWarp) {
      if (needs_flights(blocks)) return recv_in_flights(to, blocks);
    }
    for_blocks(blocks, [&](int peer, size_t begin, uint32_t bytes, uint32_t unit) {
      Raw raw[1];
      if (fetch(peer, 1, unit, raw)) store(to + begin, bytes, unit, raw[0]);
    });
  }
  __device__ __forceinline__ void load(const char* from, uint32_t bytes, uint32_t unit,
                                       uint32_t (&words)[Wire::kWords]) const {
    if constexpr (Wire::kPerWarp) {
      if (live_) Memory::template load_pieces<kBounds>(from, bytes, unit, this->lane_, words);
      Memory::template rejoin_lanes<Memory::template kByGrains<kBounds>>();
    } else if constexpr (cuts_words(kBounds)) {
      const uint32_t at = unit * Wire::kShape.bytes;
      if (live_) load_grains<grain_of(kBounds)>(from + at, bytes - at, words);
    } else {
      const auto* const source = reinterpret_cast<const uint32_t*>(from) + unit * Wire::kWords;
#pragma unroll
      for (int w = 0; w < Wire::kWords; ++w) words[w] = has_word(bytes, unit, w) ? source[w] : 0;
    }
  }
  __device__ __forceinline__ void store(char* to, uint32_t bytes, uint32_t unit,
                                        const uint32_t (&words)[Wire::kWords]) const {
    if constexpr (Wire::kPerWarp) {
      if (live_) Memory::template store_pieces<kBounds>(to, bytes, unit, this->lane_, words);
      Memory::template rejoin_lanes<Memory::template kByGrains<kBounds>>();
    } else if constexpr (cuts_words(kBounds)) {
      const uint32_t at = unit * Wire::kShape.bytes;
      if (live_) store_grains<grain_of(kBounds)>(to + at, bytes - at, words);
    } else {
      auto* const target = reinterpret_cast<uint32_t*>(to) + unit * Wire::kWords;
#pragma unroll
      for (int w = 0; w < Wire::kWords; ++w) {
        if (has_word(bytes, unit, w)) target[w] = words[w];
      }
    }
  }
  /// LL: whether the word of the unit is to be moved. The last unit may have but one.
  __device__ __forceinline__ bool has_word(uint32_t bytes, uint32_t unit, int word) const {
    return live_ && (word == 0 || (unit * Wire::kWords + word) * 4 < bytes);
  }
  __device__ __forceinline__ void store(char* to, uint32_t bytes, uint32_t unit, const Raw& raw) const {
    uint32_t words[Wire::kWords];
    Wire::open(raw, this->lane_, words);
    store(to, bytes, unit, words);
  }
  __device__ __forceinline__ void put(int peer, uint32_t unit, const uint32_t (&words)[Wire::kWords]) const {
    if (live_) Wire::put(this->sink_of(peer), this->mark_, unit, this->lane_, words);
  }

  template <Peers kind>
  __device__ __forceinline__ void push(const Span& own, char* into) {
    const char* const from = at(own);
    const uint32_t bytes = bytes_of_span(own);
    for_units(bytes, [&](uint32_t unit) {
      uint32_t words[Wire::kWords];
      load(from, bytes, unit, words);
      if constexpr (kind == Peers::kAll) {
#pragma unroll 1
        for (int i = 1; i < this->ranks(); ++i) put(peer_at(i), unit, words);
      }
      if (into != nullptr && into != from) store(into, bytes, unit, words);
    });
  }

  /// Between the steps: to all, to the root alone (then it is not stored), or to nobody.
  template <Peers sinks>
  __device__ __forceinline__ void reduce_and_pass_on(const char* own, char* into, uint32_t bytes) {
    this->begin_second_step();
    reduce<kFlight, sinks>(own, into, bytes);
    this->end_second_step();
  }
  /// All ranks' data in rank order, kRanks ranks in flight at a time.
  template <int kRanks, Peers sinks>
  __device__ __forceinline__ void reduce(const char* own, char* into, uint32_t bytes) {
    using Accumulator = typename E::Accumulator;
    for_units(bytes, [&](uint32_t unit) {
      uint32_t words[Wire::kWords];
      load(own, bytes, unit, words);
      Accumulator values[kElements];
#pragma unroll
      for (int i = 0; i < kElements; ++i) values[i] = combination_.identity();
#pragma unroll 1
      for (int first = 0; first < this->ranks(); first += kRanks) {
        Raw raw[kRanks];
        if (!fetch(first, peers_from<kRanks>(first), unit, raw)) return;
#pragma unroll
        for (int r = 0; r < kRanks; ++r) {
          if (first + r >= this->ranks()) break;
          uint32_t part[Wire::kWords];
          Wire::open(raw[r], this->lane_, part);
          const bool mine = first + r == this->rank();
#pragma unroll
          for (int w = 0; w < Wire::kWords; ++w) part[w] = mine ? words[w] : part[w];
          Accumulator more[kElements];
          combination_.template widen<Wire::kWords>(part, more);
#pragma unroll
          for (int i = 0; i < kElements; ++i) values[i] = combination_.combine(values[i], more[i]);
        }
      }
      combination_.template narrow<Wire::kWords>(values, words);
      if constexpr (sinks == Peers::kAll) {
#pragma unroll 1
        for (int i = 1; i < this->ranks(); ++i) put(peer_at(i), unit, words);
      }
      if constexpr (sinks == Peers::kOne) {
        put(root_, unit, words);
      } else {
        store(into, bytes, unit, words);
      }
    });
  }

  /// The unit of the ranks from `first` on of which `wanted` has a bit, once all are there. False: aborted.
  template <int kSlots>
  __device__ __forceinline__ bool fetch(int first, uint32_t wanted, uint32_t unit, Raw (&raw)[kSlots]) {
    const Endpoint source = this->source_of(first);
    const uint32_t apart = this->queue_.layout.slot_bytes;
    uint32_t missing = live_ ? wanted : 0;
    Patience<OfCollectives> patience(this->waiter());
    while (true) {
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        if ((missing >> s & 1U) != 0) raw[s] = Wire::fetch(source.slot + s * apart, unit, this->lane_);
      }
#pragma unroll
      for (int s = 0; s < kSlots; ++s) {
        if ((missing >> s & 1U) != 0 && Wire::ready(raw[s], source, this->lane_)) missing &= ~(1U << s);
      }
      if (missing == 0) return true;
      if (give_up(patience, source, first, missing, unit, raw)) return false;
    }
  }
  /// `raw` is what there is of the missing ones.
  template <int kSlots>
  __device__ __forceinline__ bool give_up(Patience<OfCollectives>& patience, const Endpoint& first_source, int first,
                                          uint32_t missing, uint32_t unit, const Raw (&raw)[kSlots]) {
    Flags seen[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) seen[s] = Wire::flags_in(raw[s]);
    bool exhausted = patience.exhausted([&](bool late) {
#pragma unroll 1
      for (uint32_t left = missing; left != 0; left &= left - 1) {
        const int slot = __ffs(left) - 1;
        patience.note(first + slot, For::kData, late);
        Endpoint source = first_source;
        source.slot += slot * this->queue_.layout.slot_bytes;
        tell_what_arrived<Wire>(this->queue_, first + slot, source, seen, slot, unit);
      }
    });
    if constexpr (Wire::kPerWarp) exhausted = __any_sync(0xffffffffU, exhausted);
    this->aborted_ = exhausted;
    return exhausted;
  }

  const char* input_ = nullptr;
  char* output_ = nullptr;
  int root_ = 0;
  bool live_ = true;
  Combination<type, with> combination_;
};

}  // namespace nitinol::cuda
