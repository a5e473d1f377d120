// The protocol for large messages: the CTAs of a launch have different work, so that the wire is never idle while data
// is summed or copied. Some push the rank's own data into peers' slots, the others take what has arrived there: they
// combine it, put it into the output and, if it is a result for others, into their slots. Each kind stands in groups,
// and each group does every so-manieth transfer of its kind, all its CTAs together; the last one done with a transfer
// tells the peers. So each rank has several transfers under way in both directions, in any order.
//
// That is right for algorithms that put nothing over data which a CTA of the other kind may still have to push
// (suits_bulk()). Waiting is for single slots, so nobody waits who would not with one transfer after the other.
#pragma once

#include "algorithm/primitives.h"
#include "executor/cuda/bulk_flags.h"
#include "executor/cuda/bulk_movement.h"
#include "executor/cuda/waiting.h"

namespace nitinol::cuda {

using algorithm::Flow;
using algorithm::Operands;
using algorithm::Peers;
using algorithm::Side;
using algorithm::Span;

/// The place of a CTA.
struct BulkRole {
  bool pushes;
  uint32_t group;
  uint32_t groups;  ///< of its kind
  BulkPart part;    ///< within the group
};

__device__ __forceinline__ BulkRole bulk_role(uint32_t pushers) {
  const bool pushes = blockIdx.x < pushers;
  const uint32_t index = pushes ? blockIdx.x : blockIdx.x - pushers;
  const uint32_t count = pushes ? pushers : gridDim.x - pushers;
  const uint32_t groups = min(kBulkGroups, count);
  const uint32_t group = index % groups;
  return {pushes, group, groups, {index / groups, (count - group + groups - 1) / groups}};
}

template <DataType type, Combine how>
class BulkWorker : public algorithm::Verbs<BulkWorker<type, how>> {
 public:
  using Movement = BulkMovement<type, how>;

  __device__ BulkWorker(const QueueView& view, uint32_t pushers, BulkState& state)
      : flags_{view}, state_(state), role_(bulk_role(pushers)) {
    for (int peer = static_cast<int>(threadIdx.x); peer < ranks(); peer += static_cast<int>(blockDim.x)) {
      state.sent[peer] = load_live_word(flags_.steps_sent(peer));
      state.received[peer] = load_live_word(flags_.steps_received(peer));
    }
    if (threadIdx.x == 0) state.given_up = false;
    __syncthreads();
  }

  __device__ __forceinline__ void begin(const Work& work) { work_ = &work; }
  __device__ __forceinline__ int rank() const { return flags_.view.rank; }
  __device__ __forceinline__ int ranks() const { return flags_.view.layout.ranks; }
  __device__ __forceinline__ int root() const { return work_->root; }

  template <Flow flow>
  __device__ __forceinline__ void transfer(const Operands& o) {
    static_assert(flow.from != Peers::kOne || !flow.own, "sums of two belong to rings and trees");
    Transfer t{};
    t.bytes = o.count * Movement::kElementBytes;
    if constexpr (flow.own) {
      t.own = (o.own.side == Side::kInput ? work_->input : work_->output) + o.own.offset * Movement::kElementBytes;
    }
    if constexpr (flow.into) t.into = work_->output + o.into.offset * Movement::kElementBytes;
    if (t.into == t.own) t.into = flow.from == Peers::kNone ? nullptr : t.into;  // in place: it is there
    t.from_kind = flow.from;
    t.to_kind = flow.to;
    t.from = o.from;
    t.to = o.to;
    t.divisor = flow.finish && work_->average ? ranks() : 0;
    perform(t);
  }

  /// The steps become those of the next operation. All CTAs have read them by then.
  __device__ void finish() {
    __syncthreads();
    if (threadIdx.x >= 32 || state_.given_up) return;
    if (!is_last(flags_.finished(), gridDim.x)) return;
    for (int peer = static_cast<int>(threadIdx.x); peer < ranks(); peer += 32) {
      store_live_word(flags_.steps_sent(peer), state_.sent[peer]);
      store_live_word(flags_.steps_received(peer), state_.received[peer]);
    }
  }

 private:
  struct Transfer {
    const char* own;
    char* into;
    size_t bytes;
    Peers from_kind;
    Peers to_kind;
    int from;
    int to;
    int divisor;  ///< 0: the result is no average
  };

  __device__ __forceinline__ bool is_source(const Transfer& t, int peer) const {
    return peer != rank() && (t.from_kind == Peers::kAll || (t.from_kind == Peers::kOne && t.from == peer));
  }
  __device__ __forceinline__ bool is_sink(const Transfer& t, int peer) const {
    if (peer == rank()) return false;
    return t.to_kind == Peers::kAll || (t.to_kind == Peers::kOne && t.to == peer) ||
           (t.to_kind == Peers::kAllBut && t.to != peer);
  }

  __device__ __noinline__ void perform(Transfer t) {
    const bool pushed = t.from_kind == Peers::kNone;
    const uint32_t turn = (pushed ? pushed_ : taken_)++;
    if (pushed == role_.pushes && turn % role_.groups == role_.group) {
      if (threadIdx.x < 32) await(t);
      __syncthreads();
      if (!state_.given_up) {
        move(t);
        __syncthreads();
        if (threadIdx.x < 32) tell(t);
      }
    }
    if (threadIdx.x >= 32) return;  // one warp counts
    __syncwarp();
    for (int peer = static_cast<int>(threadIdx.x); peer < ranks(); peer += 32) {
      if (is_source(t, peer)) ++state_.received[peer];
      if (is_sink(t, peer)) ++state_.sent[peer];
    }
    __syncwarp();
  }

  /// Waits until sources are filled and sinks free, and says where they are. The first warp.
  __device__ __forceinline__ void await(const Transfer& t) {
    bool there = !state_.given_up;
    int sinks = 0;
    // Lanes stand for peers in rotation, so that no two ranks push to the same one first.
    for (int base = 0; base < ranks(); base += 32) {
      const int distance = base + static_cast<int>(threadIdx.x);
      const int peer = distance < ranks() ? algorithm::rank_after(rank(), distance, ranks()) : rank();
      if (is_source(t, peer)) {
        const uint32_t step = state_.received[peer];
        state_.source[peer] = flags_.incoming(peer, step);
        there = reached(flags_.filled(peer, step), step + 1, peer) && there;
      }
      const bool sink = is_sink(t, peer);
      const uint32_t chosen = __ballot_sync(0xffffffffU, sink);
      if (sink) {
        const uint32_t step = state_.sent[peer];
        state_.sink[sinks + __popc(chosen & ((1U << threadIdx.x) - 1))] = flags_.outgoing(peer, step);
        there = reached(flags_.credit(peer, step), step + 1 - flags_.view.layout.channels, peer) && there;
      }
      sinks += __popc(chosen);
    }
    if (threadIdx.x == 0) state_.sinks = sinks;
    if (!there) state_.given_up = true;
  }

  __device__ __forceinline__ bool reached(const uint32_t* word, uint32_t step, int peer) const {
    Patience patience(flags_.view.signals);
    while (static_cast<int32_t>(load_acquire(word) - step) < 0) {
      if (state_.given_up || patience.exhausted(peer)) return false;
    }
    return true;
  }

  __device__ __forceinline__ void move(const Transfer& t) const {
    const BulkTarget target{t.into, state_.sink, state_.sinks, t.bytes, role_.part};
    switch (t.from_kind) {
      case Peers::kNone: Movement::carry_own(target, t.own); break;
      case Peers::kOne: Movement::carry_arrived(target, state_.source[t.from]); break;
      case Peers::kAll:
      case Peers::kAllBut: Movement::combine(target, {t.own, state_.source, rank(), ranks(), t.divisor}); break;
    }
  }

  /// The first warp, when all threads of the CTA are done.
  __device__ __forceinline__ void tell(const Transfer& t) const {
    uint32_t* counter = nullptr;
    if (t.from_kind != Peers::kNone) {
      const int first = t.from_kind == Peers::kOne ? t.from : rank() == 0 ? 1 : 0;
      counter = flags_.consumers(first, state_.received[first]);
    } else {
      for (int peer = 0; peer < ranks() && counter == nullptr; ++peer) {
        if (is_sink(t, peer)) counter = flags_.producers(peer, state_.sent[peer]);
      }
    }
    if (counter == nullptr || !is_last(counter, role_.part.count)) return;
    for (int peer = static_cast<int>(threadIdx.x); peer < ranks(); peer += 32) {
      if (is_sink(t, peer)) store_live_word(flags_.filled_at(peer, state_.sent[peer]), state_.sent[peer] + 1);
      if (is_source(t, peer)) store_live_word(flags_.credit_at(peer, state_.received[peer]), state_.received[peer] + 1);
    }
  }

  /// Whether all other CTAs have come here before; then what they have written is seen by whoever sees what this one
  /// writes next. A warp.
  __device__ __forceinline__ static bool is_last(uint32_t* counter, uint32_t count) {
    uint32_t last = 0;
    if (threadIdx.x == 0) {
      fence_all_gpus();
      last = atomicInc(counter, count - 1) == count - 1 ? 1 : 0;
    }
    last = __shfl_sync(0xffffffffU, last, 0);
    __syncwarp();
    if (last != 0) fence_all_gpus();
    return last != 0;
  }

  BulkFlags flags_;
  BulkState& state_;
  const Work* work_ = nullptr;
  const BulkRole role_;
  uint32_t pushed_ = 0;  ///< transfers of either kind
  uint32_t taken_ = 0;
};

}  // namespace nitinol::cuda
