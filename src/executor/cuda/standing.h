// Whether a launch of messages stands: everything that it does is done, or waits for a peer. Then only peers can bring
// it on, and who waits tells the host so, as it depends on that what follows from the wait (kernel_waits.h). A launch
// that has not begun as a whole does not stand, nor does one that the system keeps waiting for memory.
//
// Every warp that moves data has a mark. One thread sets those of a CTA when it begins, and each warp its own when it
// is done: a count at the end made messages of up to 256 KB 0.4 us longer, and a store of each warp at the beginning
// 0.1 us. Who has waited for long looks at all of them. A CTA stands if each of its warps waits or is done; one that
// receives by LL or LL128 if any waits, as the others may do so at a barrier, and those that still move data do what
// only its sender waits for.
//
// Launches come one after the other, and their CTAs count themselves as they begin, so that those of a launch are a
// whole. Launches by several protocols that run beside each other are counted apart: if the counts of two are the same,
// both have begun.
#pragma once

#include "executor/cuda/parameters.h"
#include "executor/cuda/ptx.h"

namespace nitinol::cuda {

/// Of the CTA that asks.
template <class Wire>
class Standing {
 public:
  __device__ __forceinline__ explicit Standing(const QueueView& queue) : queue_(queue) {}

  /// By all threads, once earlier kernels are done, and before a barrier.
  __device__ __forceinline__ void begin() const {
    if (threadIdx.x != blockDim.x - 1) return;
    StandingTable* const table = this->table();
    const uint32_t workers = blockDim.x / 32 - (Wire::kCounted ? 1 : 0);
    const uint64_t all_move = kEach * kMoves | uint64_t{kEach * kMoves} << 32;
    *reinterpret_cast<volatile uint64_t*>(table->mark[blockIdx.x]) = all_move >> (64 - 8 * workers);
    const uint32_t share = blockIdx.x == 0 ? StandingTable::kWhole - (gridDim.x - 1) : 1;
    atomicAdd(&table->begun[beside_launch(queue_)], share);
  }
  // By one lane of a warp that moves data. It waits to receive something, or until it may send.
  __device__ __forceinline__ void wait(bool receives) const {
    mark(receives && !Wire::kCounted ? kWaitsForAll : kWaits);
  }
  __device__ __forceinline__ void go_on() const { mark(kMoves); }
  __device__ __forceinline__ void end() const { mark(kIsDone); }

  /// A bit for each protocol by which all that this rank does in the launch stands.
  __device__ __noinline__ uint32_t protocols() const {
    const uint32_t beside = beside_launch(queue_);
    const uint32_t begun = load_live_word(&table()->begun[beside]);
    if (begun % StandingTable::kWhole != 0) return 0;
    uint32_t bits = 0;
    for (int i = 0; i < kProtocols; ++i) {
      const bool runs = i == static_cast<int>(Wire::kProtocol) || (beside >> i & 1U) != 0;
      if (!runs || stands(static_cast<Protocol>(i), beside, begun)) bits |= 1U << i;
    }
    return bits;
  }

 private:
  enum Mark : uint8_t { kIsDone = 0, kMoves = 1, kWaits = 2, kWaitsForAll = 4 };
  static constexpr uint32_t kEach = 0x01010101;

  __device__ __forceinline__ StandingTable* table() const { return queue_.layout.standing(queue_.counters); }
  __device__ __forceinline__ void mark(Mark mark) const {
    volatile uint8_t* const of_cta = table()->mark[blockIdx.x];
    of_cta[threadIdx.x / 32] = mark;
  }
  __device__ __forceinline__ bool stands(Protocol protocol, uint32_t beside, uint32_t begun) const {
    const StandingTable* const of = queue_.signals->tables[static_cast<int>(message_queue_of(protocol))].standing;
    if (load_live_word(&of->begun[beside]) != begun) return false;
#pragma unroll 4
    for (int i = 0; i < StandingTable::kCtas; i += 2) {
      const uint4 marks = load_live(of->mark[i]);
      if (moves(marks.x | marks.y) || moves(marks.z | marks.w)) return false;
    }
    return true;
  }
  __device__ __forceinline__ static bool moves(uint32_t marks_of_cta) {
    return (marks_of_cta & kEach * kMoves) != 0 && (marks_of_cta & kEach * kWaitsForAll) == 0;
  }

  const QueueView& queue_;
};

}  // namespace nitinol::cuda
