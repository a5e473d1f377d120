// Whether a launch of messages stands: everything that it does is done, or waits for a peer. Then only peers can bring
// it on, and who waits tells the host so, as it depends on that what follows from the wait (kernel_waits.h). A launch
// that has not begun as a whole does not stand, nor does one that the system keeps waiting for memory.
//
// Every warp that moves data has a mark, which it stores as it begins, as it ends, and again and again while it waits
// for long. Nothing else is stored, nor asked, as it moves data: what that costs shows in short messages. So a mark of
// a wait holds for some moments alone, in which a warp that still waits stores it again; those who look must find the
// same for longer than that. (A count at the end made messages of up to 256 KB 0.4 us longer.)
//
// Who has waited for long looks at all marks. A CTA stands if each of its warps waits or is done; one that receives by
// LL or LL128 if any waits, as the others may do so at a barrier, and those that still move data do what only its
// sender waits for.
//
// Launches come one after the other, and their CTAs count themselves as they begin, so that those of a launch are a
// whole. Launches by several protocols that run beside each other are counted apart: if the counts of two are the same,
// both have begun. No fence stands between marks and counts: that what is found holds for long makes up for it.
#pragma once

#include "executor/cuda/parameters.h"
#include "executor/cuda/ptx.h"

namespace nitinol::cuda {

/// Of the warp that asks.
template <class Wire>
class Standing {
 public:
  __device__ __forceinline__ explicit Standing(const QueueView& queue)
      : queue_(queue), mine_(&table()->mark[place_of_lane()][threadIdx.x / 32]) {
    asm volatile("" : "+l"(mine_));  // not to be computed again at the end, where nothing hides it
  }

  // By one lane of a warp that moves data.
  __device__ __forceinline__ void begin() const { *mine_ = kMoves; }
  __device__ __forceinline__ void end() const { *mine_ = kIsDone; }
  /// It waits to receive something, or until it may send: to be told every few milliseconds.
  __device__ __forceinline__ void wait(bool receives) const {
    const uint32_t kind = receives && !Wire::kCounted ? kWaits | kWaitsForAll : kWaits;
    *mine_ = static_cast<uint16_t>(now() << kTimeAt | kind);
  }
  /// By one thread of each of so many lanes as it begins.
  __device__ __forceinline__ void count(int lanes) const {
    const uint32_t share = place_of_lane() == 0 ? StandingTable::kWhole - (lanes - 1) : 1;
    atomicAdd(&table()->begun[beside_launch(queue_)], share);
  }

  /// A bit for each protocol by which all that this rank does in the launch stands.
  __device__ __forceinline__ uint32_t protocols() const {
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
  enum Mark : uint32_t { kIsDone = 0, kMoves = 1, kWaits = 2, kWaitsForAll = 4 };
  // Above these bits: when it was stored, in units of 17 ms.
  static constexpr int kTimeAt = 4;
  static constexpr uint32_t kTimes = 1U << (16 - kTimeAt);
  static constexpr uint32_t kHoldsFor = 3;  ///< shorter than the time between looks of which several must be the same

  __device__ __forceinline__ static uint32_t now() { return static_cast<uint32_t>(nanoseconds() >> 24); }
  /// Of the lane that these threads carry among those of the launch.
  __device__ __forceinline__ static uint32_t place_of_lane() {
    return Wire::kInRows ? blockIdx.x * blockDim.y + threadIdx.y : blockIdx.x;
  }
  __device__ __forceinline__ StandingTable* table() const { return queue_.layout.standing(queue_.counters); }

  __device__ __forceinline__ bool stands(Protocol protocol, uint32_t beside, uint32_t begun) const {
    const StandingTable* const of = queue_.signals->tables[static_cast<int>(message_queue_of(protocol))].standing;
    if (load_live_word(&of->begun[beside]) != begun) return false;
    const uint32_t time = now();
#pragma unroll 4
    for (int cta = 0; cta < StandingTable::kCtas; ++cta) {
      const uint4 marks = load_live(of->mark[cta]);
      const uint32_t found =
          found_in(marks.x, time) | found_in(marks.y, time) | found_in(marks.z, time) | found_in(marks.w, time);
      if ((found & kMoves) != 0 && (found & kWaitsForAll) == 0) return false;
    }
    return true;
  }
  /// Of two warps: bits of what they do.
  __device__ __forceinline__ static uint32_t found_in(uint32_t marks, uint32_t time) {
    return found_by(marks & 0xffffU, time) | found_by(marks >> 16, time);
  }
  __device__ __forceinline__ static uint32_t found_by(uint32_t mark, uint32_t time) {
    const bool holds = (mark & kWaits) == 0 || (time - (mark >> kTimeAt)) % kTimes <= kHoldsFor;
    return holds ? mark : kMoves;
  }

  const QueueView& queue_;
  volatile uint16_t* mine_;
};

}  // namespace nitinol::cuda
