// One warp's view of a channel's connections in a brief operation: one in which each rank takes from all others, once
// (in two shots before it sends on what it has summed), as its part for a channel fits into a slot.
//
// So all connections of a channel carry the same number of steps. One number, the epoch, is the step of all, a slot's
// address and flag follow from it, and a kernel has one line to read before it may begin and nothing to keep in shared
// memory. That matters: what a kernel does for itself takes as long as what is exchanged, as it does one thing after
// the other. Of rooted operations only such are brief in which each rank takes from all others at first, unless its
// block is empty (reduce in two shots): one that does not take what another has sent to it would never find out that
// their calls differ, as it goes on to the next step.
//
// A slot is free once its receiver is done with the operation that used it. Each rank posts to all others up to which
// epoch it is: when a kernel begins, as all earlier ones have ended then, and as soon as half of the slots may be in
// use. A launch has no more steps than half of the slots, so what it needs has been posted by whoever has begun the
// same launch: ranks do not wait for each other in a circle.
#pragma once

#include "algorithm/primitives.h"
#include "executor/cuda/waiting.h"

namespace nitinol::cuda {

/// `steps`: how many an operation has.
template <class WireOf, uint32_t steps>
class BriefConnections {
 public:
  using Wire = WireOf;
  using Peers = algorithm::Peers;
  static constexpr bool kOneChunk = true;
  static constexpr bool kWholeChunks = false;
  static constexpr bool kTwoSteps = steps == 2;

  __device__ __forceinline__ BriefConnections(const QueueView& queue, int channel)
      : queue_(queue), channel_(channel), lane_(threadIdx.x % 32), warp_(threadIdx.x / 32), workers_(blockDim.x / 32) {}

  __device__ __forceinline__ int rank() const { return queue_.rank; }
  __device__ __forceinline__ int ranks() const { return queue_.layout.ranks; }

  /// Reads where the last operation ended. All warps of the CTA, once earlier kernels are done.
  __device__ __forceinline__ void resume(bool live) {
    uint4 words = make_uint4(0, 0, 0, 0);
    if (live) words = *reinterpret_cast<const uint4*>(state());
    __syncthreads();  // the first warp writes the state at its end
    const BriefState state{words.x, words.y, words.z, words.w};
    aborted_ = state.stopped != 0;
    began_ = giving_.epoch = state.epoch;
    credit_ = state.credit;
    if (!is_first_warp()) return;
    if (began_ - state.posted >= queue_.layout.slots / 2) post();
    renews_ = began_ - credit_ >= queue_.layout.slots / 2;
    if (renews_) next_credit_ = credit_of(lane_);  // nobody waits for it here
  }

  /// Writes it back. The first warp may be through before the others: nobody reads it before the next kernel.
  __device__ __forceinline__ void suspend(bool live) {
    __syncwarp();
    if (__any_sync(0xffffffffU, aborted_)) [[unlikely]]
      stop_later_kernels(queue_);
    if (!is_first_warp()) return;
    if (renews_) {
      const uint32_t credit = least_credit(next_credit_);
      if (lane_ == 0) state()->credit = credit;
    }
    if (live && lane_ == 0) state()->epoch = giving_.epoch;
  }

 protected:
  /// Makes a call the one that is under way.
  __device__ __forceinline__ void begin_call(uint32_t mark) {
    mark_ = mark & ~0U << (32 - 8 * Wire::kMarkedBytes);
    give_to_next_step();
    taking_ = giving_;
  }
  /// What is sent from now on is of the second step, but what is received is not: data is passed on from one to the
  /// other.
  __device__ __forceinline__ void begin_second_step() { give_to_next_step(); }
  /// Whoever has sent what was taken has begun this launch: what it posted then was not there yet at its beginning.
  __device__ __forceinline__ void end_second_step() {
    taking_ = giving_;
    if (renews_) next_credit_ = credit_of(lane_);
  }
  __device__ __forceinline__ bool is_own(const algorithm::Flow&, int, int) const { return true; }

  /// How many sinks a transfer has; all are free.
  __device__ __forceinline__ int await_sinks(Peers kind, int to) {
    to_ = kind == Peers::kOne ? to : -1;
    return kind == Peers::kNone ? 0 : kind == Peers::kOne ? 1 : ranks() - 1;
  }
  __device__ __forceinline__ void await_sources(Peers kind, int from) { from_ = kind == Peers::kOne ? from : -1; }
  /// All of them in rotation from the own rank, so that no two ranks start with the same peer.
  __device__ __forceinline__ Endpoint sink(int index) const {
    return sink_of(to_ >= 0 ? to_ : algorithm::rank_after(rank(), index + 1, ranks()));
  }
  /// All of them by rank.
  __device__ __forceinline__ Endpoint source(int index) const { return source_of(sender(index)); }
  __device__ __forceinline__ int sender(int index) const { return from_ >= 0 ? from_ : index; }

  __device__ __forceinline__ Endpoint sink_of(int peer) const { return endpoint(giving_, queue_.region[peer], rank()); }
  /// The own rank has one too, which stays empty.
  __device__ __forceinline__ Endpoint source_of(int peer) const {
    return endpoint(taking_, queue_.region[rank()], peer);
  }

  __device__ __forceinline__ void arrive() {
    if constexpr (Wire::kPerWarp) {
      __syncwarp();
      aborted_ = __any_sync(0xffffffffU, aborted_);
    }
  }
  /// All connections count the same steps in any case.
  __device__ __forceinline__ void skip(Peers, int, Peers, int) const {}
  __device__ __forceinline__ Waiter waiter() const { return {queue_, work_}; }

  const QueueView& queue_;
  int channel_;
  int lane_;
  int warp_;
  int workers_;
  uint32_t mark_ = 0;  ///< of the call that is under way, as in Work, as far as it goes into flags
  bool aborted_ = false;
  int work_ = 0;  ///< the collective of the launch that is under way

 private:
  __device__ __forceinline__ bool is_first_warp() const { return warp_ == 0; }
  __device__ __forceinline__ BriefState* state() const {
    return queue_.layout.brief_state(queue_.counters, channel_, queue_.rank);
  }
  /// A step of all connections, and where its slots begin in every region.
  struct Step {
    uint32_t epoch = 0;
    uint32_t slots = 0;
  };
  __device__ __forceinline__ Endpoint endpoint(const Step& step, char* region, int sender) const {
    char* const slot = region + (step.slots + static_cast<uint32_t>(sender) * queue_.layout.slot_bytes);
    return {slot, step.epoch, Wire::second_flag(step.epoch, mark_)};
  }
  __device__ __forceinline__ void give_to_next_step() {
    ++giving_.epoch;
    giving_.slots = queue_.layout.brief_slots(channel_, giving_.epoch);
    if (giving_.epoch - credit_ > queue_.layout.slots) [[unlikely]]
      await_room();
  }
  __device__ __forceinline__ bool is_peer(int rank) const { return rank < ranks() && rank != queue_.rank; }
  /// The epoch up to which a rank is done; of others than peers that at which this kernel began.
  __device__ __forceinline__ uint32_t credit_of(int rank) const {
    if (!is_peer(rank)) return began_;
    return load_live_word(queue_.layout.credit(queue_.region[queue_.rank], channel_, rank));
  }
  __device__ __forceinline__ void post() const {
#pragma unroll 1
    for (int peer = lane_; peer < ranks(); peer += 32) {
      if (is_peer(peer)) store_live_word(queue_.layout.credit(queue_.region[peer], channel_, queue_.rank), began_);
    }
    if (lane_ == 0) state()->posted = began_;
  }
  /// Up to where all peers are done, but no more than this rank was at its beginning. `first`: of the peer whose number
  /// is the lane's.
  __device__ __forceinline__ uint32_t least_credit(uint32_t first) const {
    int behind = max(static_cast<int>(began_ - first), 0);
#pragma unroll 1
    for (int peer = lane_ + 32; peer < ranks(); peer += 32) {
      behind = max(behind, static_cast<int>(began_ - credit_of(peer)));
    }
#pragma unroll 1
    for (int distance = 16; distance > 0; distance /= 2) {
      behind = max(behind, __shfl_xor_sync(0xffffffffU, behind, distance));
    }
    return began_ - behind;
  }
  /// What the first warp has found out in the launch before is enough mostly. Lanes may have given up each for itself.
  __device__ __forceinline__ void await_room() {
    Patience<OfCollectives> patience(waiter());
    bool gives_up = aborted_;
    while (giving_.epoch - credit_ > queue_.layout.slots) {
      aborted_ = __any_sync(0xffffffffU, gives_up);
      if (aborted_) return;
      credit_ = least_credit(credit_of(lane_));
      gives_up = patience.exhausted([&](bool late) {
#pragma unroll 1
        for (int peer = lane_; peer < ranks(); peer += 32) {
          const bool waits = is_peer(peer) && giving_.epoch - credit_of(peer) > queue_.layout.slots;
          if (waits) patience.note(peer, For::kRoom, late);
        }
      });
    }
  }

  uint32_t began_ = 0;  ///< the epoch when this kernel began
  Step giving_;
  Step taking_;
  uint32_t credit_ = 0;       ///< up to where all peers are known to be done
  bool renews_ = false;       ///< that, for the next kernel,
  uint32_t next_credit_ = 0;  ///< of which this is what the lane's peer has posted
  int to_ = -1;               ///< -1: all
  int from_ = -1;
};

}  // namespace nitinol::cuda
