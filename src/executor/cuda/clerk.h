// The warp that tells peers which slots are filled and which are free (Simple): the others of its CTA go on meanwhile.
#pragma once

#include "executor/cuda/connections.h"

namespace nitinol::cuda {

/// The warp that tells peers about the progress of the CTA. Runs the algorithms as the workers do.
template <class Wire>
class Clerk : public Connections<Wire>, public algorithm::Verbs<Clerk<Wire>> {
 public:
  __device__ __forceinline__ explicit Clerk(const Connections<Wire>& connections) : Connections<Wire>(connections) {}

  __device__ void begin(const Work& work, int) {
    root_ = work.root;
    any_order_ = work.any_order;
  }
  __device__ void begin(const Message&) {}
  __device__ __forceinline__ int root() const { return root_; }
  __device__ __forceinline__ bool any_order() const { return any_order_; }

  /// At the end.
  __device__ __forceinline__ void close() const {
    if (aborted_) stop_later_kernels(this->queue_);
  }

  template <algorithm::Flow flow>
  __device__ __forceinline__ void transfer(const algorithm::Operands& o) {
    if (!aborted_ && this->is_own(flow, o.from, o.to)) post(flow.from, o.from, flow.to, o.to);
  }

 private:
  __device__ __noinline__ void post(Peers from_kind, int from, Peers to_kind, int to) {
    ++this->transfers_;
    const bool publishes = Wire::kCounted && to_kind != Peers::kNone;
    if ((publishes || from_kind != Peers::kNone) && !await_workers()) return;
    if (publishes && static_cast<int32_t>(fenced_ - this->transfers_) < 0) {
      __syncwarp();      // each lane has seen one worker's progress, and one lane may publish
      fence_all_gpus();  // covers whatever the workers have finished meanwhile
      fenced_ = passed_;
    }
    // One peer by the first lane at once: with a look at every rank messages of 64 MB took 2 % longer.
    if (to_kind == Peers::kOne) {
      if (this->lane_ == 0) publish(to);
    } else if (to_kind != Peers::kNone) {
      for (int peer = this->lane_; peer < this->ranks(); peer += 32) {
        if (peer != this->rank() && algorithm::is_among(to_kind, to, peer)) publish(peer);
      }
    }
    __syncwarp();  // a peer's counters may have been another lane's just now
    if (from_kind == Peers::kOne) {
      if (this->lane_ == 0) release(from);
    } else if (from_kind == Peers::kAll) {
      for (int peer = this->lane_; peer < this->ranks(); peer += 32) {
        if (peer != this->rank()) release(peer);
      }
    }
    __syncwarp();
  }

  /// False: one has aborted.
  __device__ __forceinline__ bool await_workers() {
    while (static_cast<int32_t>(passed_ - this->transfers_) < 0) {
      uint32_t ahead =
          atomicOr(this->progress_ + (this->lane_ < this->workers_ ? this->lane_ : 0), 0U) - this->transfers_;
      for (int distance = 16; distance > 0; distance /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffffU, ahead, distance);
        if (static_cast<int32_t>(other) < static_cast<int32_t>(ahead)) ahead = other;
      }
      if (static_cast<int32_t>(ahead) < -static_cast<int32_t>(kBeyondReach / 2)) {
        aborted_ = true;
        take_all_slots();
        return false;
      }
      passed_ = this->transfers_ + ahead;
      __threadfence_block();
    }
    return true;
  }

  /// Not counted from what has been sent: this kernel may have found them taken, as the last one was aborted too.
  __device__ __forceinline__ void take_all_slots() {
    for (int peer = this->lane_; peer < this->ranks(); peer += 32) {
      this->counters_[peer].sent = this->counters_[peer].credit + kBeyondReach;
    }
    __syncwarp();
  }

  __device__ __forceinline__ void publish(int peer) {
    const uint32_t sent = ++this->counters_[peer].sent;
    if constexpr (Wire::kCounted) {
      store_live_word(this->queue_.layout.filled(this->queue_.region[peer], this->channel_out_, this->rank()), sent);
    }
  }

  __device__ __forceinline__ void release(int peer) {
    Counters c = this->counters_[peer];
    ++c.received;
    if (joins_parts<Wire> || c.received - c.posted >= this->slots_to_collect()) {
      c.posted = c.received;
      this->store_credit(peer, c.received);
    }
    this->counters_[peer] = c;
  }

  int root_ = 0;
  bool any_order_ = false;
  bool aborted_ = false;  ///< a worker has
  uint32_t passed_ = 0;   ///< transfers that all workers are done with
  uint32_t fenced_ = 0;   ///< and those among them whose data may be announced
};

}  // namespace nitinol::cuda
