// One warp's view of a channel's connections: the steps of each, the waiting, and the telling of peers.
//
// A CTA is a few worker warps and one clerk warp. All run the same program. A worker moves its part of every transfer and
// waits for nothing but its own data and free slots: workers never wait for each other. When all workers are done with a
// transfer the clerk tells the peers: slots that are filled (Simple) and slots that are free again. The latter it delays,
// if slots are left, until the next operation starts: a store to a peer at a kernel's end would prolong it.
#pragma once

#include "algorithm/primitives.h"
#include "executor/cuda/parameters.h"
#include "executor/cuda/wires.h"

namespace nitinol::cuda {

using algorithm::Peers;

extern __shared__ uint4 shared_memory[];

/// Counts turns of a waiting loop and looks at the abort flag now and then: it lies in host memory, a microsecond away.
class Patience {
 public:
  __device__ __forceinline__ explicit Patience(const volatile uint32_t* aborted) : aborted_(aborted) {}
  __device__ __forceinline__ bool exhausted() { return (++turns_ & 0xfffU) == 0 && *aborted_ != 0; }

 private:
  const volatile uint32_t* aborted_;
  uint32_t turns_ = 0;
};

struct __align__(16) Counters {
  uint32_t sent, received, posted, credit;
};

template <class Wire>
class Connections {
 public:
  __device__ Connections(const QueueView& queue, int channel)
      : queue_(queue), channel_(channel), lane_(threadIdx.x % 32), warp_(threadIdx.x / 32), workers_(blockDim.x / 32 - 1) {
    uint4* mine = shared_memory + 8 + warp_ * queue.layout.ranks * 3;
    sources_ = reinterpret_cast<Endpoint*>(mine);
    sinks_ = sources_ + queue.layout.ranks;
    counters_ = reinterpret_cast<Counters*>(sinks_ + queue.layout.ranks);
    progress_ = reinterpret_cast<volatile uint32_t*>(shared_memory);
    if (threadIdx.x < 32) progress_[threadIdx.x] = 0;
  }

  __device__ __forceinline__ int rank() const { return queue_.rank; }
  __device__ __forceinline__ int ranks() const { return queue_.layout.ranks; }

  /// Reads the steps where the last operation left them. All warps of the CTA; contains the only barrier.
  __device__ void resume() {
    for (int peer = lane_; peer < ranks(); peer += 32) {
      if (peer != rank()) resume(peer);
    }
    __syncthreads();
  }
  /// Writes the steps back, of both directions.
  __device__ void suspend() {
    if (!is_clerk()) return;
    for (int peer = lane_; peer < ranks(); peer += 32) {
      if (peer == rank()) continue;
      const Counters c = counters_[peer];
      ConnectionState* state = queue_.layout.state(queue_.region[rank()], channel_, peer);
      *reinterpret_cast<uint4*>(state) = make_uint4(c.sent, c.received, c.posted, 0);
    }
  }
  /// The same for one direction of one connection, which this CTA alone works on.
  __device__ void resume_lane(int peer) {
    if (lane_ == 0) resume(peer);
    __syncthreads();
  }
  __device__ void suspend_lane(int peer, bool sends) {
    if (!is_clerk() || lane_ != 0) return;
    const Counters c = counters_[peer];
    ConnectionState* state = queue_.layout.state(queue_.region[rank()], channel_, peer);
    if (sends) {
      state->sent = c.sent;
    } else {
      state->received = c.received;
      state->posted = c.posted;
    }
  }

 protected:
  __device__ __forceinline__ bool is_clerk() const { return warp_ == workers_; }

  __device__ __forceinline__ Endpoint source(int index) const { return sources_[index]; }
  __device__ __forceinline__ Endpoint sink(int index) const { return sinks_[index]; }

  /// Waits for free slots and takes them; how many there are.
  __device__ int await_sinks(Peers kind, int to) {
    if (kind == Peers::kNone) return 0;
    int count = 1;
    if (kind == Peers::kOne) {
      if (lane_ == 0) take_sink(to, 0);
    } else {
      // In rotation from the own rank, so that no two ranks start with the same peer.
      const int hole = kind == Peers::kAllBut ? algorithm::rank_before(to, rank() + 1, ranks()) : ranks();
      for (int i = lane_; i < ranks() - 1; i += 32) {
        if (i != hole) take_sink(algorithm::rank_after(rank(), i + 1, ranks()), i > hole ? i - 1 : i);
      }
      count = ranks() - 1 - (hole < ranks() - 1 ? 1 : 0);
    }
    agree_on_abort();
    return count;
  }

  /// Takes the oldest slot of one peer, or of each by rank; waits until it is filled where the data itself cannot tell.
  __device__ void await_sources(Peers kind, int from) {
    if (kind == Peers::kOne) {
      if (lane_ == 0) take_source(from, 0);
    } else {
      for (int peer = lane_; peer < ranks(); peer += 32) {
        if (peer != rank()) take_source(peer, peer);
      }
    }
    agree_on_abort();
  }

  /// A worker is done with its part of a transfer.
  __device__ __forceinline__ void arrive() {
    agree_on_abort();
    ++transfers_;
    if (lane_ == 0) {
      __threadfence_block();
      progress_[warp_] = transfers_;
    }
  }

  /// The clerk's part of a transfer.
  __device__ void post(Peers from_kind, int from, Peers to_kind, int to) {
    ++transfers_;
    const bool publishes = Wire::kCounted && to_kind != Peers::kNone;
    if (publishes || from_kind != Peers::kNone) await_workers();
    if (to_kind == Peers::kOne) {
      if (publishes) fence_all_gpus();
      if (lane_ == 0) publish(to);
    } else if (to_kind != Peers::kNone) {
      if (publishes) fence_all_gpus();
      for (int peer = lane_; peer < ranks(); peer += 32) {
        if (peer != rank() && !(to_kind == Peers::kAllBut && peer == to)) publish(peer);
      }
    }
    if (from_kind == Peers::kOne) {
      if (lane_ == 0) release(from);
    } else if (from_kind == Peers::kAll) {
      for (int peer = lane_; peer < ranks(); peer += 32) {
        if (peer != rank()) release(peer);
      }
    }
    __syncwarp();
  }

  const QueueView& queue_;
  int channel_;
  int lane_;
  int warp_;
  int workers_;
  bool aborted_ = false;

 private:
  __device__ __forceinline__ void agree_on_abort() {
    __syncwarp();
    aborted_ = __any_sync(0xffffffffU, aborted_);
  }

  __device__ void resume(int peer) {
    char* region = queue_.region[rank()];
    const uint4 state = *reinterpret_cast<const uint4*>(queue_.layout.state(region, channel_, peer));
    Counters c{state.x, state.y, state.z, load_live_word(queue_.layout.credit(region, channel_, peer))};
    if (is_clerk() && c.posted != c.received) post_credit(peer, c);
    counters_[peer] = c;
  }

  __device__ __forceinline__ void post_credit(int peer, Counters& c) {
    c.posted = c.received;
    store_live_word(queue_.layout.credit(queue_.region[peer], channel_, rank()), c.received);
  }

  __device__ __forceinline__ void take_sink(int peer, int place) {
    Counters c = counters_[peer];
    Patience patience(queue_.aborted);
    while (c.sent - c.credit >= queue_.layout.slots) {
      c.credit = load_live_word(queue_.layout.credit(queue_.region[rank()], channel_, peer));
      if (patience.exhausted()) {
        aborted_ = true;
        break;
      }
    }
    sinks_[place] = Endpoint{queue_.layout.slot(queue_.region[peer], peer, rank(), channel_, c.sent), c.sent + 1, 0};
    ++c.sent;
    counters_[peer] = c;
  }

  __device__ __forceinline__ void take_source(int peer, int place) {
    const uint32_t step = counters_[peer].received;
    char* region = queue_.region[rank()];
    if constexpr (Wire::kCounted) {
      Patience patience(queue_.aborted);
      const uint32_t* filled = queue_.layout.filled(region, channel_, peer);
      while (static_cast<int32_t>(load_acquire(filled) - (step + 1)) < 0) {
        if (patience.exhausted()) {
          aborted_ = true;
          break;
        }
      }
    }
    sources_[place] = Endpoint{queue_.layout.slot(region, rank(), peer, channel_, step), step + 1, 0};
    counters_[peer].received = step + 1;
  }

  __device__ __forceinline__ void await_workers() {
    while (true) {
      const bool done = lane_ >= workers_ || static_cast<int32_t>(progress_[lane_] - transfers_) >= 0;
      if (__all_sync(0xffffffffU, done)) break;
    }
    __threadfence_block();
  }

  __device__ __forceinline__ void publish(int peer) {
    const uint32_t sent = ++counters_[peer].sent;
    if constexpr (Wire::kCounted) {
      store_live_word(queue_.layout.filled(queue_.region[peer], channel_, rank()), sent);
    }
  }

  __device__ __forceinline__ void release(int peer) {
    Counters c = counters_[peer];
    ++c.received;
    if (c.received - c.posted >= (queue_.layout.slots + 1) / 2) post_credit(peer, c);
    counters_[peer] = c;
  }

  Endpoint* sources_;
  Endpoint* sinks_;
  Counters* counters_;
  volatile uint32_t* progress_;
  uint32_t transfers_ = 0;
};

}  // namespace nitinol::cuda
