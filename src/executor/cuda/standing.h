// Whether a launch of messages stands: everything that it does is done, or waits for a peer. Then only peers can bring
// it on, and who waits tells the host so, as it depends on that what follows from the wait (kernel_waits.h). A launch
// that has not begun as a whole does not stand, nor does one that the system keeps waiting for memory.
//
// Every warp that moves data has a mark. It costs a store when the warp begins and one when it is done: a count at the
// end made messages of up to 256 KB 0.4 us longer. Who has waited for long looks at the marks of all. A CTA, which
// carries messages in one direction, stands if each of its warps waits or is done; one that receives by LL or LL128 if
// any waits, as the others may do so at a barrier, and those that still move data do what only its sender waits for.
//
// Launches come one after the other, and CTAs add their shares of a whole to a sum as they begin: so those of a launch
// have if the sum is a number of wholes. Launches by several protocols that run beside each other have sums of their
// own, which are equal if all have begun.
#pragma once

#include "executor/cuda/parameters.h"
#include "executor/cuda/ptx.h"

namespace nitinol::cuda {

/// Of the CTA that asks.
template <class Wire>
class Standing {
 public:
  __device__ __forceinline__ explicit Standing(const QueueView& queue) : queue_(queue) {}

  /// By all threads, once earlier kernels are done.
  __device__ __forceinline__ void begin() const {
    const bool is_clerk = Wire::kCounted && threadIdx.x / 32 == blockDim.x / 32 - 1;
    if (threadIdx.x % 32 == 0 && !is_clerk) mark(kMoving);
    if (threadIdx.x != blockDim.x - 1) return;  // short messages do without the last warp
    const uint32_t each = kWhole / gridDim.x;
    const uint32_t share = blockIdx.x == 0 ? kWhole - (gridDim.x - 1) * each : each;
    atomicAdd(&table(queue_.counters)->begun[beside_launch(queue_)], share);
  }
  // By one lane of a warp that moves data.
  __device__ __forceinline__ void wait() const { mark(kWaiting); }
  __device__ __forceinline__ void go_on() const { mark(kMoving); }
  __device__ __forceinline__ void end() const { mark(kDone); }

  /// A bit for each protocol by which all that this rank does in the launch stands.
  __device__ __noinline__ uint32_t protocols() const {
    const uint32_t beside = beside_launch(queue_);
    const uint32_t begun = load_live_word(&table(queue_.counters)->begun[beside]);
    if (begun % kWhole != 0) return 0;
    uint32_t bits = 0;
    for (int i = 0; i < kProtocols; ++i) {
      const bool runs = i == static_cast<int>(Wire::kProtocol) || (beside >> i & 1U) != 0;
      if (!runs || stands(static_cast<Protocol>(i), beside, begun)) bits |= 1U << i;
    }
    return bits;
  }

 private:
  static constexpr uint32_t kWhole = 1U << 16;
  enum Mark : uint8_t { kDone, kMoving, kWaiting };
  // Of all warps of a lane.
  static constexpr uint32_t kAnyMoving = 0x01010101U * kMoving;
  static constexpr uint32_t kAnyWaiting = 0x01010101U * kWaiting;

  __device__ __forceinline__ StandingTable* table(char* counters) const { return queue_.layout.standing(counters); }
  __device__ __forceinline__ void mark(Mark mark) const {
    const Lane& lane = lane_of_launch(queue_, blockIdx.x);
    MarksOfConnection& marks = table(queue_.counters)->marks()[lane.channel * queue_.layout.ranks + lane.peer];
    volatile uint8_t* const of_lane = lane.sends != 0 ? marks.sender : marks.receiver;
    of_lane[threadIdx.x / 32] = mark;
  }
  __device__ __forceinline__ bool stands(Protocol protocol, uint32_t beside, uint32_t begun) const {
    const volatile Signals::Table& of = queue_.signals->tables[static_cast<int>(message_queue_of(protocol))];
    const StandingTable* const table = of.standing;
    if (load_live_word(&table->begun[beside]) != begun) return false;
    const bool by_lines = protocol != Protocol::kSimple;
    const int connections = of.channels * queue_.layout.ranks;
#pragma unroll 4
    for (int i = 0; i < connections; ++i) {
      const uint4 marks = load_live(table->marks() + i);
      const bool receiver_moves = ((marks.x | marks.y) & kAnyMoving) != 0;
      const bool receiver_waits = ((marks.x | marks.y) & kAnyWaiting) != 0;
      const bool sender_moves = ((marks.z | marks.w) & kAnyMoving) != 0;
      if (sender_moves || (receiver_moves && !(by_lines && receiver_waits))) return false;
    }
    return true;
  }

  const QueueView& queue_;
};

}  // namespace nitinol::cuda
