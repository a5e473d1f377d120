// Whether a launch of messages stands: everything that it does is done, or waits for a peer. Then only peers can bring
// it on, and who waits tells the host so, as it depends on that what follows from the wait (kernel_waits.h). A launch
// that has not begun as a whole does not stand, nor does one that the system keeps waiting for memory.
//
// A CTA, which carries messages in one direction, counts those of its warps that wait and those that are done. It
// stands once they are all of its warps; one that receives by LL or LL128 once any waits, as the others may do so at a
// barrier, and those that still move data do what nobody but this lane's sender waits for. It adds its share to a sum
// while it stands. The shares of a launch are a whole: so its launch stands if the sum is a number of wholes, as they
// come one after the other. Launches by several protocols that run beside each other have sums of their own, which are
// equal if both stand, or one is through.
#pragma once

#include "executor/cuda/parameters.h"
#include "executor/cuda/ptx.h"

namespace nitinol::cuda {

extern __shared__ uint4 shared_memory[];

/// What a wait has to know of the launch that it is in.
struct Waiter {
  const QueueView& queue;
  int work;  ///< which collective; 0: messages

  __device__ __forceinline__ CallName call() const { return name_of_launch(queue) + static_cast<uint32_t>(work); }
};

/// What is waited for: what a peer sends, or that it takes what it was sent.
enum class For { kData, kRoom };

/// A CTA's part, by one lane of each of the warps that move data.
template <class Wire>
class Standing {
 public:
  __device__ __forceinline__ Standing(const QueueView& queue, For what) : queue_(queue), what_(what) {}

  /// By all threads of the CTA, with a barrier before anything is counted.
  __device__ __forceinline__ static void clear() {
    if (threadIdx.x == 0) *warps() = 0;
  }
  __device__ __forceinline__ void wait() const { count(queue_, what_, kWaiting); }
  __device__ __forceinline__ void go_on() const { count(queue_, what_, 0U - kWaiting); }
  __device__ __forceinline__ void end() const { count(queue_, what_, kDone); }

  /// While this warp waits: a bit for each protocol by which all that this rank does in the launch stands. None unless
  /// it does so by this one.
  __device__ __forceinline__ uint32_t protocols() const {
    if (!stands(atomicOr(warps(), 0U), what_)) return 0;  // the sum may be that of the launch before
    const uint32_t beside = beside_launch(queue_);
    const uint32_t sum = load_live_word(queue_.layout.standing(queue_.counters) + beside);
    if (sum % kWhole != 0) return 0;
    uint32_t bits = (1U << kProtocols) - 1;
    for (int i = 0; i < kProtocols; ++i) {
      if ((beside >> i & 1U) == 0 || i == static_cast<int>(Wire::kProtocol)) continue;
      const uint32_t* const sums = queue_.signals->tables[static_cast<int>(Queue::kMessageLL) + i].standing;
      if (load_live_word(sums + beside) != sum) bits &= ~(1U << i);
    }
    return bits;
  }

 private:
  static constexpr uint32_t kWhole = 1U << 16;
  // What each warp adds to its CTA's count.
  static constexpr uint32_t kWaiting = 1;
  static constexpr uint32_t kDone = 1U << 16;

  /// Behind the workers' progress (Connections), of which messages need less.
  __device__ __forceinline__ static uint32_t* warps() { return reinterpret_cast<uint32_t*>(shared_memory) + 31; }

  __device__ __forceinline__ static bool stands(uint32_t counted, For what) {
    const uint32_t waiting = counted % kDone;
    const uint32_t done = counted / kDone;
    const uint32_t all = blockDim.x / 32 - (Wire::kCounted ? 1 : 0);
    return waiting + done == all || (!Wire::kCounted && what == For::kData && waiting > 0);
  }
  __device__ __noinline__ static void count(const QueueView& queue, For what, uint32_t change) {
    const uint32_t before = atomicAdd(warps(), change);
    const bool stood = stands(before, what);
    if (stood == stands(before + change, what)) return;
    const uint32_t each = kWhole / gridDim.x;
    const uint32_t share = blockIdx.x == 0 ? kWhole - (gridDim.x - 1) * each : each;
    atomicAdd(queue.layout.standing(queue.counters) + beside_launch(queue), stood ? 0U - share : share);
  }

  const QueueView& queue_;
  const For what_;
};

}  // namespace nitinol::cuda
