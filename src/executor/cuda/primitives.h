// The communication primitives of the algorithms as a worker warp's part of them.
#pragma once

#include "executor/cuda/movement.h"

namespace nitinol::cuda {

using algorithm::Flow;
using algorithm::Operands;
using algorithm::Side;
using algorithm::Span;

/// kInline: transfers become part of the algorithm's code, for speed; else they are functions that all algorithms of a
/// kernel share, for size. kBounds: as in WorkerBase.
template <class Link, DataType type, Combiner with, bool kInline, Bounds kBounds = Bounds::kPieces>
class Worker : public WorkerBase<Link, type, with, kBounds>,
               public algorithm::Verbs<Worker<Link, type, with, kInline, kBounds>> {
 public:
  using Base = WorkerBase<Link, type, with, kBounds>;
  using Wire = typename Link::Wire;
  static constexpr bool kOneChunk = Link::kOneChunk;
  static constexpr bool kWholeChunks = Link::kWholeChunks;
  static constexpr bool kRehearses = false;

  template <class Seen>
  __device__ __forceinline__ explicit Worker(const Seen& connections) : Base(connections) {}

  /// Makes the buffers, the root and the reduction's extras those of `work`.
  __device__ __forceinline__ void begin(const Work& work, int index) {
    this->work_ = index;
    this->begin_call(work.mark);
    input_ = work.input;
    output_ = work.output;
    root_ = work.root;
    any_order_ = work.any_order;
    if constexpr (with != Combiner::kNone) begin_reduction(work);
  }
  /// The same for a message, which is both.
  __device__ __forceinline__ void begin(const Message& message) {
    this->begin_call(message.mark());
    input_ = message.buffer;
    output_ = message.buffer;
  }
  __device__ __forceinline__ int root() const { return root_; }
  __device__ __forceinline__ bool any_order() const { return any_order_; }

  template <Flow flow>
  __device__ __forceinline__ void transfer(const Operands& o) {
    if (!this->is_own(flow, o.from, o.to)) return;
    constexpr bool ends_first_step = Link::kTwoSteps && flow.from == Peers::kAll;
    if constexpr (ends_first_step) this->begin_second_step();
    if (!this->aborted_) {
      Job job{};
      if constexpr (flow.own) job.own = buffer(o.own.side) + o.own.offset * Base::kElementBytes;
      if constexpr (flow.into) job.into = output_ + o.into.offset * Base::kElementBytes;
      job.bytes = static_cast<uint32_t>(o.count) * Base::kElementBytes;
      job.scale = flow.own && o.own.side == Side::kInput && this->extras_.scaled;
      job.average = flow.finish && this->extras_.average;
      if constexpr (flow.own && flow.into && flow.from == Peers::kNone) {
        if (job.into == job.own && !job.scale) job.into = nullptr;  // in place: it is there
      }
      if constexpr (kInline) {
        dispatch<flow>(job, o);
      } else {
        dispatch_call<flow>(job, o);
      }
    } else if constexpr (!Wire::kCounted) {
      this->skip(flow.from, o.from, flow.to, o.to);
    }
    if constexpr (ends_first_step) this->end_second_step();
    this->arrive();
  }

 protected:
  __device__ __forceinline__ char* buffer(Side side) const {
    return side == Side::kInput ? const_cast<char*>(input_) : output_;
  }

 private:
  template <Flow flow>
  __device__ __forceinline__ void dispatch(const Job& job, const Operands& o) {
    if constexpr (flow.from == Peers::kNone) {
      this->move_own(job, flow.to, o.to);
    } else if constexpr (flow.from == Peers::kOne && !flow.own) {
      this->move_arrived(job, o.from, flow.to, o.to);
    } else if constexpr (flow.from == Peers::kOne) {
      this->combine_arrived(job, o.from, flow.to, o.to);
    } else {
      this->combine_all(job, flow.to, o.to);
    }
  }
  template <Flow flow>
  __device__ __forceinline__ void dispatch_call(const Job& job, const Operands& o) {
    if constexpr (flow.from == Peers::kNone) {
      call_move_own(job, flow.to, o.to);
    } else if constexpr (flow.from == Peers::kOne && !flow.own) {
      call_move_arrived(job, o.from, flow.to, o.to);
    } else if constexpr (flow.from == Peers::kOne) {
      call_combine_arrived(job, o.from, flow.to, o.to);
    } else {
      call_combine_all(job, flow.to, o.to);
    }
  }
  __device__ __noinline__ void call_move_own(Job job, Peers to_kind, int to) { this->move_own(job, to_kind, to); }
  __device__ __noinline__ void call_move_arrived(Job job, int from, Peers to_kind, int to) {
    this->move_arrived(job, from, to_kind, to);
  }
  __device__ __noinline__ void call_combine_arrived(Job job, int from, Peers to_kind, int to) {
    this->combine_arrived(job, from, to_kind, to);
  }
  __device__ __noinline__ void call_combine_all(Job job, Peers to_kind, int to) { this->combine_all(job, to_kind, to); }

  __device__ __forceinline__ void begin_reduction(const Work& work) {
    this->combination_.begin(work);
    if constexpr (with == Combiner::kSum) {
      this->extras_.average = work.average;
      this->extras_.is_unsigned = work.is_unsigned;
      this->extras_.scaled = work.scalar != Reduction::Scalar::kNone;
      this->extras_.scalar = work.immediate;
      if (work.scalar == Reduction::Scalar::kDevice) read_scalar(reinterpret_cast<const char*>(work.immediate));
    }
  }
  __device__ void read_scalar(const char* from) {
    this->extras_.scalar = 0;
    for (uint32_t i = 0; i < Base::kElementBytes; ++i) {
      this->extras_.scalar |= static_cast<uint64_t>(static_cast<uint8_t>(from[i])) << (8 * i);
    }
  }

  const char* input_ = nullptr;
  char* output_ = nullptr;
  int root_ = 0;
  bool any_order_ = false;
};

}  // namespace nitinol::cuda
