// When the last collectives of a rank began and ended: written by whoever runs them, one at a time, and read by any
// thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/time_stamp.h"
#include "model/signature.h"

namespace nitinol {

class OperationTimes {
 public:
  static constexpr size_t kKept = 256;

  void begin(const Signature& signature) {
    Slot& slot = slots_[signature.sequence % kKept];
    slot.sequence.store(0, std::memory_order_relaxed);
    slot.count.store(signature.count, std::memory_order_release);
    slot.call.store(signature.call, std::memory_order_release);
    slot.begun.store(TimeStamp::now(), std::memory_order_release);
    slot.ended.store(0, std::memory_order_release);
    slot.sequence.store(signature.sequence, std::memory_order_release);
    last_.store(signature.sequence, std::memory_order_release);
  }
  void end(uint64_t sequence) { slots_[sequence % kKept].ended.store(TimeStamp::now(), std::memory_order_release); }

  struct Run {
    Signature signature;
    int64_t begun = 0;  ///< nanoseconds since the epoch
    int64_t ended = 0;  ///< 0: not yet, or it was aborted
  };
  /// Oldest first.
  std::vector<Run> last(const TimeScale& scale) const;
  /// The last one; sequence 0 if there was none.
  Run current(const TimeScale& scale) const { return read(last_.load(std::memory_order_acquire), scale); }

 private:
  struct Slot {
    std::atomic<uint64_t> sequence{0};
    std::atomic<uint64_t> count{0};
    std::atomic<uint64_t> call{0};
    std::atomic<int64_t> begun{0};
    std::atomic<int64_t> ended{0};
  };
  Run read(uint64_t sequence, const TimeScale& scale) const;

  std::atomic<uint64_t> last_{0};
  std::array<Slot, kKept> slots_;
};

/// Sequence 0 if it was overwritten meanwhile.
inline OperationTimes::Run OperationTimes::read(uint64_t sequence, const TimeScale& scale) const {
  const Slot& slot = slots_[sequence % kKept];
  if (sequence == 0 || slot.sequence.load(std::memory_order_acquire) != sequence) return {};
  Run run;
  run.signature.count = slot.count.load(std::memory_order_acquire);
  run.signature.call = slot.call.load(std::memory_order_acquire);
  run.begun = scale.nanoseconds(slot.begun.load(std::memory_order_acquire));
  run.ended = scale.nanoseconds(slot.ended.load(std::memory_order_acquire));
  if (slot.sequence.load(std::memory_order_acquire) != sequence) return {};
  run.signature.sequence = sequence;
  return run;
}

inline std::vector<OperationTimes::Run> OperationTimes::last(const TimeScale& scale) const {
  std::vector<Run> runs;
  const uint64_t last = last_.load(std::memory_order_acquire);
  for (uint64_t sequence = last > kKept ? last - kKept + 1 : 1; sequence <= last; ++sequence) {
    const Run run = read(sequence, scale);
    if (run.signature.sequence != 0) runs.push_back(run);
  }
  return runs;
}

}  // namespace nitinol
