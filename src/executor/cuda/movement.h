// How a worker warp moves and combines data: own data, what has arrived from one rank, what has arrived from all.
#pragma once

#include "executor/cuda/combination.h"
#include "executor/cuda/connections.h"
#include "executor/cuda/user_memory.h"

namespace nitinol::cuda {

/// How a worker reaches the user's buffers: by whole vectors; the same, but own data by two vectors of which it cuts
/// its own out; in any way.
enum class Access { kPlain, kShifted, kAny };

/// What a transfer does with its data, apart from where it comes from.
struct Job {
  const char* own;
  char* into;
  uint32_t bytes;
  bool scale;    ///< apply the scalar to the own data
  bool average;  ///< divide the result
};

/// What else there is to a sum. Registers are short: what reduces otherwise, or only moves data, keeps nothing of it.
template <Combiner with>
struct Extras {
  static constexpr bool scaled = false;
  static constexpr bool average = false;
};
template <>
struct Extras<Combiner::kSum> {
  bool scaled = false;
  bool average = false;
  bool is_unsigned = false;  ///< tells which average
  uint64_t scalar = 0;
};

/// `Link`: WorkerConnections, or BriefConnections. kBounds: of what is moved by whole vectors.
template <class Link, DataType type, Combiner with, Bounds kBounds = Bounds::kPieces>
class WorkerBase : public Link {
 public:
  using Wire = typename Link::Wire;
  using E = Elements<type>;
  using Accumulator = typename E::Accumulator;
  static constexpr int kWords = Wire::kWords;
  static constexpr int kElements = E::template kCount<kWords>;
  static constexpr uint32_t kElementBytes = E::kSize;

  template <class Seen>
  __device__ __forceinline__ explicit WorkerBase(const Seen& connections) : Link(connections) {}

 protected:
  using Memory = UserMemory<Wire>;
  using Raw = typename Wire::Raw;

  __device__ __forceinline__ uint32_t first_unit() const { return Wire::kPerWarp ? this->warp_ : threadIdx.x; }
  __device__ __forceinline__ uint32_t units_apart() const {
    return Wire::kPerWarp ? this->workers_ : this->workers_ * 32;
  }
  __device__ __forceinline__ static uint32_t units_in(uint32_t bytes) {
    return (bytes + Wire::kShape.bytes - 1) / Wire::kShape.bytes;
  }
  __device__ __forceinline__ static bool begins_within_bounds(const char* base) {
    return begins_anywhere(kBounds) ? reinterpret_cast<uintptr_t>(base) % grain_of(kBounds) == 0
                                    : Memory::aligned(base);
  }
  /// Units that may be moved by vectors as they are.
  __device__ __forceinline__ static uint32_t plain_units(const Job& job) {
    const bool plain = begins_within_bounds(job.own) && begins_within_bounds(job.into) && !job.scale;
    if (!plain) return 0;
    if constexpr (Wire::kCounted && cuts_words(kBounds)) return job.bytes / Wire::kShape.bytes;
    constexpr uint32_t kEnd = kBounds == Bounds::kPieces ? Wire::kShape.piece : grain_of(kBounds);
    return job.bytes % kEnd == 0 ? units_in(job.bytes) : job.bytes / Wire::kShape.bytes;
  }

  /// By LL threads beyond the last unit move that one again, so that whole warps do the same: broadcasts of 9 and 17
  /// KB, of which channels have 4 warps and a half, took 5 % longer otherwise. Only what moves data may be done twice.
  static constexpr bool kFillsWarps =
      !Wire::kPerWarp && !Wire::kCounted && kBounds == Bounds::kWordEnds && with == Combiner::kNone;
  /// Where threads stop that move plain units one by one.
  __device__ __forceinline__ static uint32_t end_of_warps(uint32_t plain, uint32_t units) {
    return kFillsWarps && plain == units ? (plain + 31) / 32 * 32 : plain;
  }
  __device__ __forceinline__ static uint32_t unit_of_warp(uint32_t unit, uint32_t plain) {
    return kFillsWarps ? min(unit, plain - 1) : unit;
  }

  static constexpr bool kShifts = Wire::kCounted && with != Combiner::kOther;
  /// Units of own data that may be loaded shifted: where the result goes is aligned but the own data is not. The last
  /// one would need a vector that ends beyond the buffer.
  __device__ __forceinline__ static uint32_t shifted_units(const Job& job) {
    if (Memory::aligned(job.own) || !Memory::aligned(job.into) || job.scale) return 0;
    const uint32_t whole = job.bytes / Wire::kShape.bytes;
    return whole == 0 ? 0 : whole - 1;
  }

  template <Access kAccess>
  __device__ __forceinline__ void load(const Job& job, uint32_t unit, uint32_t (&words)[kWords]) const {
    if constexpr (kAccess == Access::kPlain) {
      Memory::template load_pieces<kBounds>(job.own, job.bytes, unit, this->lane_, words);
    } else if constexpr (kAccess == Access::kShifted) {
      load_shifted(job.own + unit * Wire::kShape.bytes, words);
    } else {
      Memory::load(job.own, Memory::aligned(job.own), job.bytes, unit, this->lane_, words);
      if constexpr (with != Combiner::kNone) {
        if (job.scale) scale_words(words);
      }
    }
  }
  template <Access kAccess>
  __device__ __forceinline__ void store(const Job& job, uint32_t unit, const uint32_t (&words)[kWords]) const {
    if (job.into == nullptr) return;
    if constexpr (kAccess != Access::kAny) {
      Memory::template store_pieces<kBounds>(job.into, job.bytes, unit, this->lane_, words);
    } else {
      Memory::store(job.into, Memory::aligned(job.into), job.bytes, unit, this->lane_, words);
    }
  }
  template <Access kAccess>
  static constexpr bool kAsksLanes = kAccess == Access::kAny || Memory::template kByGrains<kBounds>;
  template <int kUnits, Access kAccess>
  __device__ __forceinline__ void give(const Job& job, uint32_t unit, int sinks,
                                       const uint32_t (&words)[kUnits][kWords]) const {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) store<kAccess>(job, unit + u * units_apart(), words[u]);
    Memory::template rejoin_lanes<kAsksLanes<kAccess>>();
    for (int s = 0; s < sinks; ++s) {
      const Endpoint sink = this->sink(s);
#pragma unroll
      for (int u = 0; u < kUnits; ++u) Wire::put(sink, this->mark_, unit + u * units_apart(), this->lane_, words[u]);
    }
  }

  /// Multiplies by the scalar, or by nothing: then numbers are only brought into the form that reductions give.
  __device__ __forceinline__ void scale_words(uint32_t (&words)[kWords]) const {
    Accumulator values[kElements];
    E::template widen<kWords>(words, values);
    if constexpr (with == Combiner::kSum) {
      if (extras_.scaled) {
        const Accumulator factor = Arithmetic<type>::to_accumulator(E::element_of(extras_.scalar));
#pragma unroll
        for (int i = 0; i < kElements; ++i) values[i] = nitinol::combine<Combine::kProduct>(values[i], factor);
      }
    }
    E::template narrow<kWords>(values, words);
  }
  __device__ __forceinline__ void combine_words(Accumulator (&values)[kElements],
                                                const uint32_t (&words)[kWords]) const {
    Accumulator more[kElements];
    combination_.template widen<kWords>(words, more);
#pragma unroll
    for (int i = 0; i < kElements; ++i) values[i] = combination_.combine(values[i], more[i]);
  }
  __device__ __forceinline__ Accumulator average(Accumulator sum) const {
    if constexpr (std::is_integral_v<Accumulator>) {
      using Unsigned = std::make_unsigned_t<Accumulator>;
      if (extras_.is_unsigned) {
        return static_cast<Accumulator>(nitinol::average(static_cast<Unsigned>(sum), this->ranks()));
      }
    }
    return nitinol::average(sum, this->ranks());
  }
  __device__ __forceinline__ void finish_words(Accumulator (&values)[kElements], bool divide,
                                               uint32_t (&words)[kWords]) const {
    if constexpr (with == Combiner::kSum) {
      if (divide) {
#pragma unroll
        for (int i = 0; i < kElements; ++i) values[i] = average(values[i]);
      }
    }
    combination_.template narrow<kWords>(values, words);
  }

  /// Bit s of `missing`: not all of the units of the source first + s have arrived, of which `raw` is what there is.
  template <int kSlots, int kUnits>
  __device__ __forceinline__ bool give_up(Patience<NotedAs<Wire>>& patience, int first, uint32_t missing, uint32_t unit,
                                          const Raw (&raw)[kSlots][kUnits]) {
    Flags seen[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) seen[s] = Wire::flags_in(raw[s][0]);
    bool exhausted = patience.exhausted([&](bool late) {
#pragma unroll 1
      for (uint32_t left = missing; left != 0; left &= left - 1) {
        const int slot = __ffs(left) - 1;
        const int peer = this->sender(first + slot);
        patience.note(peer, For::kData, late);
        tell_what_arrived<Wire>(this->queue_, peer, this->source(first + slot), seen, slot, unit);
      }
    });
    if constexpr (Wire::kPerWarp) exhausted = __any_sync(0xffffffffU, exhausted);
    this->aborted_ = this->aborted_ || exhausted;
    return exhausted;
  }
  /// Fetches units from kSlots slots, from the source `first` on. Bit s of `wanted`: slot s takes part.
  template <int kSlots, int kUnits>
  __device__ __forceinline__ void fetch_now(int first, uint32_t wanted, uint32_t unit,
                                            Raw (&raw)[kSlots][kUnits]) const {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (wanted >> s & 1U) {
        const char* slot = this->source(first + s).slot;
#pragma unroll
        for (int u = 0; u < kUnits; ++u) raw[s][u] = Wire::fetch(slot, unit + u * units_apart(), this->lane_);
      }
    }
  }
  /// The same again and again until all are there. False: aborted.
  template <int kSlots, int kUnits>
  __device__ __forceinline__ bool fetch(int first, uint32_t wanted, uint32_t unit, Raw (&raw)[kSlots][kUnits]) {
    if constexpr (Wire::kCounted) {  // which has been waited for
      fetch_now<kSlots, kUnits>(first, wanted, unit, raw);
      return true;
    } else {
      uint32_t missing = wanted;
      Patience<NotedAs<Wire>> patience(this->waiter());
      while (true) {
        fetch_now<kSlots, kUnits>(first, missing, unit, raw);
#pragma unroll
        for (int s = 0; s < kSlots; ++s) {
          if (missing >> s & 1U) {
            const Endpoint source = this->source(first + s);
            bool ready = true;
#pragma unroll
            for (int u = 0; u < kUnits; ++u) ready = Wire::ready(raw[s][u], source, this->lane_) && ready;
            if (ready) missing &= ~(1U << s);
          }
        }
        if (missing == 0) return true;
        if (give_up(patience, first, missing, unit, raw)) return false;
      }
    }
  }

  template <int kUnits, Access kAccess>
  __device__ __forceinline__ void move_own_units(const Job& job, uint32_t unit, int sinks) {
    uint32_t words[kUnits][kWords];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) load<kAccess>(job, unit + u * units_apart(), words[u]);
    give<kUnits, kAccess>(job, unit, sinks, words);
  }
  __device__ __forceinline__ void move_own(const Job& job, Peers to_kind, int to) {
    const int sinks = this->await_sinks(to_kind, to);
    if (this->aborted_) return;
    const uint32_t plain = plain_units(job);
    const uint32_t units = units_in(job.bytes);
    const uint32_t apart = units_apart();
    uint32_t unit = first_unit();
    if constexpr (Wire::kBatch > 1) {
      for (; unit + (Wire::kBatch - 1) * apart < plain; unit += Wire::kBatch * apart) {
        move_own_units<Wire::kBatch, Access::kPlain>(job, unit, sinks);
      }
    }
    if constexpr (Wire::kBatch > 4) {
      for (; unit + 2 * apart < plain; unit += 3 * apart) move_own_units<3, Access::kPlain>(job, unit, sinks);
    }
    const uint32_t end = end_of_warps(plain, units);
    for (; unit < end; unit += apart) move_own_units<1, Access::kPlain>(job, unit_of_warp(unit, plain), sinks);
    if (unit < units) [[unlikely]] {
      WorkerBase apart_from_this = *this;  // so that this object can stay in registers
      apart_from_this.move_own_rest(job, unit, sinks);
    }
  }
  __device__ __noinline__ void move_own_rest(Job job, uint32_t unit, int sinks) {
    if constexpr (kShifts) {
      constexpr int kUnits = 4;
      const uint32_t shifted = shifted_units(job);
      const uint32_t apart = units_apart();
      for (; unit + (kUnits - 1) * apart < shifted; unit += kUnits * apart) {
        move_own_units<kUnits, Access::kShifted>(job, unit, sinks);
      }
    }
    for (; unit < units_in(job.bytes); unit += units_apart()) move_own_units<1, Access::kAny>(job, unit, sinks);
  }

  template <int kUnits, Access kAccess>
  __device__ __forceinline__ bool move_arrived_units(const Job& job, uint32_t unit, int sinks) {
    Raw raw[1][kUnits];
    if (!fetch<1, kUnits>(0, 1, unit, raw)) return false;
    uint32_t words[kUnits][kWords];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) Wire::open(raw[0][u], this->lane_, words[u]);
    give<kUnits, kAccess>(job, unit, sinks, words);
    return true;
  }
  __device__ __forceinline__ void move_arrived(const Job& job, int from, Peers to_kind, int to) {
    const int sinks = this->await_sinks(to_kind, to);
    this->await_sources(Peers::kOne, from);
    if (this->aborted_) return;
    const uint32_t plain = plain_units(job);
    const uint32_t units = units_in(job.bytes);
    const uint32_t apart = units_apart();
    uint32_t unit = first_unit();
    if constexpr (Wire::kBatch > 1) {
      for (; unit + (Wire::kBatch - 1) * apart < plain; unit += Wire::kBatch * apart) {
        if (!move_arrived_units<Wire::kBatch, Access::kPlain>(job, unit, sinks)) return;
      }
    }
    if constexpr (Wire::kBatch > 4) {
      for (; unit + 2 * apart < plain; unit += 3 * apart) {
        if (!move_arrived_units<3, Access::kPlain>(job, unit, sinks)) return;
      }
    }
    const uint32_t end = end_of_warps(plain, units);
    for (; unit < end; unit += apart) {
      if (!move_arrived_units<1, Access::kPlain>(job, unit_of_warp(unit, plain), sinks)) return;
    }
    if (unit < units) [[unlikely]] {
      WorkerBase apart_from_this = *this;
      apart_from_this.move_arrived_rest(job, unit, sinks);
      this->aborted_ = apart_from_this.aborted_;
    }
  }
  __device__ __noinline__ void move_arrived_rest(Job job, uint32_t unit, int sinks) {
    for (; unit < units_in(job.bytes); unit += units_apart()) {
      if (!move_arrived_units<1, Access::kAny>(job, unit, sinks)) return;
    }
  }

  /// The slot first, then the own data.
  template <int kUnits, Access kAccess>
  __device__ __forceinline__ bool combine_arrived_units(const Job& job, uint32_t unit, int sinks) {
    uint32_t words[kUnits][kWords];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) load<kAccess>(job, unit + u * units_apart(), words[u]);
    Memory::template rejoin_lanes<kAsksLanes<kAccess>>();
    Raw raw[1][kUnits];
    if (!fetch<1, kUnits>(0, 1, unit, raw)) return false;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      uint32_t arrived[kWords];
      Accumulator values[kElements];
      Wire::open(raw[0][u], this->lane_, arrived);
      combination_.template widen<kWords>(arrived, values);
      combine_words(values, words[u]);
      finish_words(values, job.average, words[u]);
    }
    give<kUnits, kAccess>(job, unit, sinks, words);
    return true;
  }
  __device__ __forceinline__ void combine_arrived(const Job& job, int from, Peers to_kind, int to) {
    constexpr int kUnits = Wire::kPerWarp ? 2 : 4;
    const int sinks = this->await_sinks(to_kind, to);
    this->await_sources(Peers::kOne, from);
    if (this->aborted_) return;
    const uint32_t plain = plain_units(job);
    const uint32_t units = units_in(job.bytes);
    const uint32_t apart = units_apart();
    uint32_t unit = first_unit();
    for (; unit + (kUnits - 1) * apart < plain; unit += kUnits * apart) {
      if (!combine_arrived_units<kUnits, Access::kPlain>(job, unit, sinks)) return;
    }
    for (; unit < plain; unit += apart) {
      if (!combine_arrived_units<1, Access::kPlain>(job, unit, sinks)) return;
    }
    if (unit < units) [[unlikely]] {
      WorkerBase apart_from_this = *this;
      apart_from_this.combine_arrived_rest(job, unit, sinks);
      this->aborted_ = apart_from_this.aborted_;
    }
  }
  __device__ __noinline__ void combine_arrived_rest(Job job, uint32_t unit, int sinks) {
    for (; unit < units_in(job.bytes); unit += units_apart()) {
      if (!combine_arrived_units<1, Access::kAny>(job, unit, sinks)) return;
    }
  }

  /// Bit r: there is a rank first + r, and it is not this one.
  template <int kRanks>
  __device__ __forceinline__ uint32_t peers_from(int first) const {
    uint32_t peers = 0;
#pragma unroll
    for (int r = 0; r < kRanks; ++r) {
      if (first + r < this->ranks() && first + r != this->rank()) peers |= 1U << r;
    }
    return peers;
  }

  /// All ranks' data in rank order, kRanks ranks in flight at a time.
  template <int kRanks, int kUnits, Access kAccess>
  __device__ __forceinline__ bool combine_all_units(const Job& job, uint32_t unit, int sinks) {
    uint32_t words[kUnits][kWords];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) load<kAccess>(job, unit + u * units_apart(), words[u]);
    Memory::template rejoin_lanes<kAsksLanes<kAccess>>();
    Accumulator values[kUnits][kElements];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) values[u][i] = combination_.identity();
    }
    for (int first = 0; first < this->ranks(); first += kRanks) {
      const uint32_t wanted = peers_from<kRanks>(first);
      Raw raw[kRanks][kUnits];
      if (!fetch<kRanks, kUnits>(first, wanted, unit, raw)) return false;
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        const bool mine = first + r == this->rank();
        if (!mine && (wanted >> r & 1U) == 0) continue;
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
          uint32_t part[kWords];
          Wire::open(raw[r][u], this->lane_, part);
#pragma unroll
          for (int w = 0; w < kWords; ++w) part[w] = mine ? words[u][w] : part[w];
          combine_words(values[u], part);
        }
      }
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) finish_words(values[u], job.average, words[u]);
    give<kUnits, kAccess>(job, unit, sinks, words);
    return true;
  }
  /// As many of these as there are whole ones before `end`; the first unit that is left. That is ~0U once aborted.
  template <int kRanks, int kUnits, Access kAccess>
  __device__ __forceinline__ uint32_t combine_all_until(const Job& job, uint32_t unit, uint32_t end, int sinks) {
    const uint32_t apart = units_apart();
    for (; unit < end && end - unit > (kUnits - 1) * apart; unit += kUnits * apart) {
      if (!combine_all_units<kRanks, kUnits, kAccess>(job, unit, sinks)) return ~0U;
    }
    return unit;
  }
  /// The same for a number of ranks that is known, and where slots hold data as it lies in memory: then the own data is
  /// a source like the others.
  template <int kRanks, int kUnits>
  __device__ __forceinline__ uint32_t combine_alike(const Job& job, uint32_t unit, uint32_t plain, int sinks) {
    static_assert(Wire::kCounted && Wire::kShape.stored == Wire::kShape.bytes);
    const uint32_t apart = units_apart();
    const char* from[kRanks];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) from[r] = r == this->rank() ? job.own : this->source(r).slot;
    for (; unit + (kUnits - 1) * apart < plain; unit += kUnits * apart) {
      Raw raw[kRanks][kUnits];
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
#pragma unroll
        for (int u = 0; u < kUnits; ++u) raw[r][u] = Wire::fetch(from[r], unit + u * apart, this->lane_);
      }
      uint32_t words[kUnits][kWords];
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        Accumulator values[kElements];
#pragma unroll
        for (int i = 0; i < kElements; ++i) values[i] = combination_.identity();
#pragma unroll
        for (int r = 0; r < kRanks; ++r) {
          Wire::open(raw[r][u], this->lane_, words[u]);
          combine_words(values, words[u]);
        }
        finish_words(values, job.average, words[u]);
      }
      give<kUnits, Access::kPlain>(job, unit, sinks, words);
    }
    return unit;
  }
  __device__ __forceinline__ void combine_all(const Job& job, Peers to_kind, int to) {
    const int sinks = this->await_sinks(to_kind, to);
    this->await_sources(Peers::kAll, -1);
    if (!this->aborted_) combine_all_taken(job, sinks);
  }
  /// The slots of all sources and sinks are taken.
  __device__ __forceinline__ void combine_all_taken(const Job& job, int sinks) {
    const uint32_t plain = plain_units(job);
    const uint32_t units = units_in(job.bytes);
    uint32_t unit = first_unit();
    if constexpr (Wire::kCounted && begins_anywhere(kBounds)) {  // the own data is no source like the others
      switch (this->ranks()) {
        case 2: unit = combine_all_until<2, 4, Access::kPlain>(job, unit, plain, sinks); break;
        case 3: unit = combine_all_until<3, 2, Access::kPlain>(job, unit, plain, sinks); break;
        case 4: unit = combine_all_until<4, 2, Access::kPlain>(job, unit, plain, sinks); break;
        default: break;
      }
    } else if constexpr (Wire::kCounted) {
      constexpr bool few = joins_parts<Wire>;  // 3 or 4
      switch (this->ranks()) {
        case 2:
          if constexpr (!few) unit = combine_alike<2, 4>(job, unit, plain, sinks);
          break;
        case 3: unit = combine_alike<3, 2>(job, unit, plain, sinks); break;
        case 4: unit = combine_alike<4, 2>(job, unit, plain, sinks); break;
        case 8:
          if constexpr (!few) unit = combine_alike<8, 1>(job, unit, plain, sinks);
          break;
        default: break;
      }
    }
    if constexpr (!Wire::kCounted) {
      unit = combine_all_until<Wire::kFlight, 1, Access::kPlain>(job, unit, plain, sinks);
    }
    if (!this->aborted_ && unit < units) [[unlikely]] {
      WorkerBase apart_from_this = *this;
      apart_from_this.combine_all_rest(job, unit, plain, sinks);
      this->aborted_ = apart_from_this.aborted_;
    }
  }
  __device__ __noinline__ void combine_all_rest(Job job, uint32_t unit, uint32_t plain, int sinks) {
    if constexpr (Wire::kCounted) {
      unit = combine_all_until<Wire::kFlight, 1, Access::kPlain>(job, unit, plain, sinks);
    }
    if constexpr (kShifts) {
      const uint32_t shifted = shifted_units(job);
      if (this->ranks() == 2) unit = combine_all_until<2, 4, Access::kShifted>(job, unit, shifted, sinks);
      if (this->ranks() == 4) unit = combine_all_until<4, 2, Access::kShifted>(job, unit, shifted, sinks);
      unit = combine_all_until<Wire::kFlight, 1, Access::kShifted>(job, unit, shifted, sinks);
    }
    for (; unit < units_in(job.bytes); unit += units_apart()) {
      if (!combine_all_units<Wire::kFlight, 1, Access::kAny>(job, unit, sinks)) return;
    }
  }

  Combination<type, with> combination_;
  Extras<with> extras_;
};

}  // namespace nitinol::cuda
