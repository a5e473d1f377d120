// The communication primitives of the algorithms as code of a CTA: every worker warp moves its part of each transfer.
#pragma once

#include "executor/cuda/connections.h"
#include "executor/cuda/elements.h"
#include "executor/cuda/user_memory.h"

namespace nitinol::cuda {

using algorithm::Flow;
using algorithm::Operands;
using algorithm::Side;
using algorithm::Span;

template <class Wire, DataType type, Combine how>
class Primitives : public Connections<Wire>, public algorithm::Verbs<Primitives<Wire, type, how>> {
 public:
  using Base = Connections<Wire>;
  using E = Elements<type>;
  using Accumulator = typename E::Accumulator;
  static constexpr int kWords = Wire::kWords;
  static constexpr int kElements = E::template kCount<kWords>;
  static constexpr uint32_t kElementBytes = E::kSize;

  __device__ Primitives(const QueueView& queue, int channel) : Base(queue, channel) {}

  /// Makes the buffers, the root and the reduction's extras those of `work`.
  __device__ void begin(const Work& work) {
    input_ = work.input;
    output_ = work.output;
    root_ = work.root;
    average_ = work.average;
    scaled_ = work.scalar != Reduction::Scalar::kNone;
    scalar_ = work.immediate;
    if (work.scalar == Reduction::Scalar::kDevice) read_scalar(reinterpret_cast<const char*>(work.immediate));
  }
  /// The same for a message, which is both.
  __device__ void begin(char* buffer) {
    input_ = buffer;
    output_ = buffer;
  }
  __device__ __forceinline__ int root() const { return root_; }

  template <Flow flow>
  __device__ __forceinline__ void transfer(const Operands& o) {
    if (this->is_clerk()) {
      this->post(flow.from, o.from, flow.to, o.to);
      return;
    }
    if (!this->aborted_) {
      const char* own = flow.own ? source_of(o.own) : nullptr;
      char* into = flow.into ? output_ + o.into.offset * kElementBytes : nullptr;
      const bool scale = flow.own && o.own.side == Side::kInput && scaled_;
      const uint32_t bytes = static_cast<uint32_t>(o.count) * kElementBytes;
      const Peers to_kind = flow.to;
      if constexpr (flow.from == Peers::kNone) {
        constexpr bool combines = flow.finish;  // a reduction over one rank
        move_own(own, into, bytes, to_kind, o.to, scale || combines);
      } else if constexpr (flow.from == Peers::kOne && !flow.own) {
        move_arrived(into, bytes, o.from, to_kind, o.to);
      } else if constexpr (flow.from == Peers::kOne) {
        combine_arrived(Both{own, into, bytes, scale, flow.finish && average_}, o.from, to_kind, o.to);
      } else {
        combine_all(Both{own, into, bytes, scale, flow.finish && average_}, to_kind, o.to);
      }
    }
    this->arrive();
  }

 private:
  using Memory = UserMemory<Wire>;
  struct Both {
    const char* own;
    char* into;
    uint32_t bytes;
    bool scale;
    bool average;
  };

  __device__ __forceinline__ const char* source_of(const Span& span) const {
    return (span.side == Side::kInput ? input_ : output_) + span.offset * kElementBytes;
  }
  __device__ __forceinline__ uint32_t first_unit() const { return Wire::kPerWarp ? this->warp_ : threadIdx.x; }
  __device__ __forceinline__ uint32_t units_apart() const { return Wire::kPerWarp ? this->workers_ : this->workers_ * 32; }
  __device__ __forceinline__ static uint32_t units_in(uint32_t bytes) {
    return (bytes + Wire::kUnitBytes - 1) / Wire::kUnitBytes;
  }

  __device__ void read_scalar(const char* from) {
    scalar_ = 0;
    for (uint32_t i = 0; i < kElementBytes; ++i) {
      scalar_ |= static_cast<uint64_t>(static_cast<uint8_t>(from[i])) << (8 * i);
    }
  }

  /// Multiplies by the scalar, or by nothing: then numbers are only brought into the form that reductions give.
  __device__ __noinline__ void scale_words(uint32_t (&words)[kWords]) const {
    Accumulator values[kElements];
    E::template widen<kWords>(words, values);
    if (scaled_) {
      const Accumulator factor = Arithmetic<type>::to_accumulator(E::element_of(scalar_));
#pragma unroll
      for (int i = 0; i < kElements; ++i) values[i] = nitinol::combine<Combine::kProduct>(values[i], factor);
    }
    E::template narrow<kWords>(values, words);
  }

  __device__ __forceinline__ void combine_words(Accumulator (&values)[kElements], const uint32_t (&words)[kWords]) const {
    Accumulator more[kElements];
    E::template widen<kWords>(words, more);
#pragma unroll
    for (int i = 0; i < kElements; ++i) values[i] = E::template combine<how>(values[i], more[i]);
  }

  __device__ __forceinline__ void finish_words(Accumulator (&values)[kElements], bool divide, uint32_t (&words)[kWords]) const {
    if (divide) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) values[i] = nitinol::average(values[i], this->ranks());
    }
    E::template narrow<kWords>(values, words);
  }

  __device__ __forceinline__ void give(uint32_t unit, char* into, bool vectors, uint32_t bytes, int sinks,
                                       const uint32_t (&words)[kWords]) const {
    if (into != nullptr) Memory::store(into, vectors, bytes, unit, this->lane_, words);
    for (int s = 0; s < sinks; ++s) Wire::put(this->sink(s), unit, this->lane_, words);
  }

  __device__ __noinline__ void move_own(const char* own, char* into, uint32_t bytes, Peers to_kind, int to, bool convert) {
    const int sinks = this->await_sinks(to_kind, to);
    if (this->aborted_) return;
    const bool own_vectors = Memory::aligned(own);
    const bool into_vectors = Memory::aligned(into);
    const uint32_t units = units_in(bytes);
    const uint32_t apart = units_apart();
    for (uint32_t unit = first_unit(); unit < units; unit += apart * Wire::kBatch) {
      uint32_t words[Wire::kBatch][kWords];
#pragma unroll
      for (int b = 0; b < Wire::kBatch; ++b) {
        if (unit + b * apart < units) Memory::load(own, own_vectors, bytes, unit + b * apart, this->lane_, words[b]);
      }
      if constexpr (type != DataType::kUint8 || how != Combine::kSum) {
        if (convert) {
#pragma unroll
          for (int b = 0; b < Wire::kBatch; ++b) scale_words(words[b]);
        }
      } else if (convert && scaled_) {
#pragma unroll
        for (int b = 0; b < Wire::kBatch; ++b) scale_words(words[b]);
      }
      if (into != nullptr) {
#pragma unroll
        for (int b = 0; b < Wire::kBatch; ++b) {
          if (unit + b * apart < units) Memory::store(into, into_vectors, bytes, unit + b * apart, this->lane_, words[b]);
        }
      }
      for (int s = 0; s < sinks; ++s) {
        const Endpoint sink = this->sink(s);
#pragma unroll
        for (int b = 0; b < Wire::kBatch; ++b) {
          if (unit + b * apart < units) Wire::put(sink, unit + b * apart, this->lane_, words[b]);
        }
      }
    }
  }

  /// Fetches units b of the batch that `missing` names, again and again until all are there. False: aborted.
  __device__ __forceinline__ bool fetch_batch(const Endpoint& from, uint32_t unit, uint32_t missing,
                                              typename Wire::Raw (&raw)[Wire::kBatch]) {
    Patience patience(this->queue_.aborted);
    while (true) {
#pragma unroll
      for (int b = 0; b < Wire::kBatch; ++b) {
        if (missing >> b & 1U) raw[b] = Wire::fetch(from.slot, unit + b * units_apart(), this->lane_);
      }
#pragma unroll
      for (int b = 0; b < Wire::kBatch; ++b) {
        if ((missing >> b & 1U) && Wire::ready(raw[b], from.flag, this->lane_)) missing &= ~(1U << b);
      }
      if (missing == 0) return true;
      if (give_up(patience)) return false;
    }
  }

  __device__ __forceinline__ bool give_up(Patience& patience) {
    bool exhausted = patience.exhausted();
    if constexpr (Wire::kPerWarp) exhausted = __any_sync(0xffffffffU, exhausted);
    this->aborted_ = this->aborted_ || exhausted;
    return exhausted;
  }

  __device__ __forceinline__ uint32_t batch_mask(uint32_t unit, uint32_t units) const {
    uint32_t mask = 0;
#pragma unroll
    for (int b = 0; b < Wire::kBatch; ++b) mask |= unit + b * units_apart() < units ? 1U << b : 0;
    return mask;
  }

  __device__ __noinline__ void move_arrived(char* into, uint32_t bytes, int from, Peers to_kind, int to) {
    const int sinks = this->await_sinks(to_kind, to);
    this->await_sources(Peers::kOne, from);
    if (this->aborted_) return;
    const bool vectors = Memory::aligned(into);
    const uint32_t units = units_in(bytes);
    const uint32_t apart = units_apart();
    const Endpoint source = this->source(0);
    for (uint32_t unit = first_unit(); unit < units; unit += apart * Wire::kBatch) {
      typename Wire::Raw raw[Wire::kBatch];
      const uint32_t present = batch_mask(unit, units);
      if (!fetch_batch(source, unit, present, raw)) break;
#pragma unroll
      for (int b = 0; b < Wire::kBatch; ++b) {
        if ((present >> b & 1U) == 0) continue;
        uint32_t words[kWords];
        Wire::open(raw[b], this->lane_, words);
        give(unit + b * apart, into, vectors, bytes, sinks, words);
      }
    }
  }

  __device__ __noinline__ void combine_arrived(const Both& t, int from, Peers to_kind, int to) {
    const int sinks = this->await_sinks(to_kind, to);
    this->await_sources(Peers::kOne, from);
    if (this->aborted_) return;
    const bool own_vectors = Memory::aligned(t.own);
    const bool into_vectors = Memory::aligned(t.into);
    const uint32_t units = units_in(t.bytes);
    const uint32_t apart = units_apart();
    const Endpoint source = this->source(0);
    for (uint32_t unit = first_unit(); unit < units; unit += apart * Wire::kBatch) {
      typename Wire::Raw raw[Wire::kBatch];
      uint32_t own[Wire::kBatch][kWords];
      const uint32_t present = batch_mask(unit, units);
#pragma unroll
      for (int b = 0; b < Wire::kBatch; ++b) {
        if (present >> b & 1U) Memory::load(t.own, own_vectors, t.bytes, unit + b * apart, this->lane_, own[b]);
        if (t.scale) scale_words(own[b]);
      }
      if (!fetch_batch(source, unit, present, raw)) break;
#pragma unroll
      for (int b = 0; b < Wire::kBatch; ++b) {
        if ((present >> b & 1U) == 0) continue;
        uint32_t words[kWords];
        Accumulator values[kElements];
        Wire::open(raw[b], this->lane_, words);
        E::template widen<kWords>(words, values);
        combine_words(values, own[b]);
        finish_words(values, t.average, words);
        give(unit + b * apart, t.into, into_vectors, t.bytes, sinks, words);
      }
    }
  }

  /// Adds the slots of ranks [first, first + Wire::kRanks) and, at its place, the own contribution. False: aborted.
  __device__ __forceinline__ bool combine_some(int first, uint32_t unit, const uint32_t (&own)[kWords],
                                               Accumulator (&values)[kElements]) {
    typename Wire::Raw raw[Wire::kRanks];
    uint32_t missing = 0;
#pragma unroll
    for (int r = 0; r < Wire::kRanks; ++r) {
      if (first + r < this->ranks() && first + r != this->rank()) missing |= 1U << r;
    }
    const uint32_t others = missing;
    Patience patience(this->queue_.aborted);
    while (true) {
#pragma unroll
      for (int r = 0; r < Wire::kRanks; ++r) {
        if (missing >> r & 1U) raw[r] = Wire::fetch(this->source(first + r).slot, unit, this->lane_);
      }
#pragma unroll
      for (int r = 0; r < Wire::kRanks; ++r) {
        if ((missing >> r & 1U) && Wire::ready(raw[r], this->source(first + r).flag, this->lane_)) missing &= ~(1U << r);
      }
      if (missing == 0) break;
      if (give_up(patience)) return false;
    }
#pragma unroll
    for (int r = 0; r < Wire::kRanks; ++r) {
      if (others >> r & 1U) {
        uint32_t words[kWords];
        Wire::open(raw[r], this->lane_, words);
        combine_words(values, words);
      } else if (first + r == this->rank()) {
        combine_words(values, own);
      }
    }
    return true;
  }

  __device__ __noinline__ void combine_all(const Both& t, Peers to_kind, int to) {
    const int sinks = this->await_sinks(to_kind, to);
    this->await_sources(Peers::kAll, -1);
    if (this->aborted_) return;
    const bool own_vectors = Memory::aligned(t.own);
    const bool into_vectors = Memory::aligned(t.into);
    const uint32_t units = units_in(t.bytes);
    for (uint32_t unit = first_unit(); unit < units; unit += units_apart()) {
      uint32_t words[kWords];
      Memory::load(t.own, own_vectors, t.bytes, unit, this->lane_, words);
      if (t.scale) scale_words(words);
      Accumulator values[kElements];
#pragma unroll
      for (int i = 0; i < kElements; ++i) values[i] = E::template identity<how>();
      for (int first = 0; first < this->ranks(); first += Wire::kRanks) {
        if (!combine_some(first, unit, words, values)) return;
      }
      finish_words(values, t.average, words);
      give(unit, t.into, into_vectors, t.bytes, sinks, words);
    }
  }

  const char* input_ = nullptr;
  char* output_ = nullptr;
  uint64_t scalar_ = 0;
  int root_ = 0;
  bool average_ = false;
  bool scaled_ = false;
};

}  // namespace nitinol::cuda
