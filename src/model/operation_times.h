// The last collectives of a rank, with the times when they began and ended: written by whoever runs them, one at a
// time, and read by any thread, and by other ranks if it lies in shared memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/time_stamp.h"
#include "model/signature.h"

namespace nitinol {

/// All zero at first. What lies in the memory is only as good as whoever writes it: numbers may be anything.
class OperationTimes {
 public:
  static constexpr size_t kKept = 255;

  struct Run {
    Signature signature;
    int64_t begun = 0;  ///< nanoseconds since the epoch
    int64_t ended = 0;  ///< 0: not yet, or it was aborted
  };

  /// Sequences are counted from 1, without a gap.
  void begin(const Signature& signature) {
    Slot& slot = slots_[signature.sequence % kSlots];
    slot.count.store(signature.count, std::memory_order_release);
    slot.call.store(signature.call, std::memory_order_release);
    slot.begun.store(TimeStamp::now(), std::memory_order_release);
    slot.ended.store(0, std::memory_order_release);
    last_.store(signature.sequence, std::memory_order_release);
  }
  void end(uint64_t sequence) { slots_[sequence % kSlots].ended.store(TimeStamp::now(), std::memory_order_release); }

  /// The last collective that was begun, and the last one that ended.
  uint64_t begun() const { return last_.load(std::memory_order_acquire); }
  uint64_t ended() const {
    const uint64_t last = begun();
    const bool through = slots_[last % kSlots].ended.load(std::memory_order_acquire) != 0;
    return through || last == 0 ? last : last - 1;
  }
  /// Nothing if it was not begun yet, or is too long ago.
  std::optional<Signature> find(uint64_t sequence) const {
    const auto run = read(sequence);
    return run ? std::optional(run->signature) : std::nullopt;
  }
  /// Oldest first.
  std::vector<Run> last(const TimeScale& scale) const {
    std::vector<Run> runs;
    const uint64_t last = begun();
    for (uint64_t sequence = last - std::min<uint64_t>(last, kKept); sequence < last; ++sequence) {
      if (const auto run = read(sequence + 1)) runs.push_back(told(*run, scale));
    }
    return runs;
  }
  /// The last one; sequence 0 if there was none.
  Run current(const TimeScale& scale) const {
    const auto run = read(begun());
    return run ? told(*run, scale) : Run{};
  }

 private:
  static constexpr size_t kSlots = kKept + 1;  ///< one is being written
  struct alignas(32) Slot {
    std::atomic<uint64_t> count;
    std::atomic<uint64_t> call;
    std::atomic<int64_t> begun;
    std::atomic<int64_t> ended;
  };

  /// Times as they were stamped. What is overwritten meanwhile is seen to be: that is begun after the last one was
  /// told.
  std::optional<Run> read(uint64_t sequence) const {
    const auto kept = [&] {
      const uint64_t last = begun();
      return sequence != 0 && sequence <= last && last - sequence < kKept;
    };
    if (!kept()) return std::nullopt;
    const Slot& slot = slots_[sequence % kSlots];
    Run run;
    run.signature = {sequence, slot.count.load(std::memory_order_acquire), slot.call.load(std::memory_order_acquire)};
    run.begun = slot.begun.load(std::memory_order_acquire);
    run.ended = slot.ended.load(std::memory_order_acquire);
    return kept() ? std::optional(run) : std::nullopt;
  }
  static Run told(Run run, const TimeScale& scale) {
    run.begun = scale.nanoseconds(run.begun);
    run.ended = scale.nanoseconds(run.ended);
    return run;
  }

  alignas(64) std::atomic<uint64_t> last_;
  alignas(64) std::array<Slot, kSlots> slots_;
};

}  // namespace nitinol
