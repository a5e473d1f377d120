// The collectives that a rank began last, in its arena: peers read them when the tag on a piece of data is wrong, or
// when nothing comes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "model/signature.h"

namespace nitinol::cpu {

/// Written by its rank alone, read by all; in shared memory, all zero at first.
class Records {
 public:
  void begin(const Signature& signature) {
    Record& record = ring_[signature.sequence % kKept];
    record.sequence.store(0, std::memory_order_relaxed);
    record.count.store(signature.count, std::memory_order_release);
    record.call.store(signature.call, std::memory_order_release);
    record.sequence.store(signature.sequence, std::memory_order_release);
    begun_.store(signature.sequence, std::memory_order_release);
  }
  void end(uint64_t sequence) { ended_.store(sequence, std::memory_order_release); }

  uint64_t begun() const { return begun_.load(std::memory_order_acquire); }
  uint64_t ended() const { return ended_.load(std::memory_order_acquire); }
  /// Nothing if it was not begun yet, or is too long ago.
  std::optional<Signature> find(uint64_t sequence) const;

  static constexpr size_t kKept = 32;

 private:
  struct Record {
    std::atomic<uint64_t> sequence;
    std::atomic<uint64_t> count;
    std::atomic<uint64_t> call;
  };

  std::atomic<uint64_t> begun_;
  std::atomic<uint64_t> ended_;
  std::array<Record, kKept> ring_;
};

inline std::optional<Signature> Records::find(uint64_t sequence) const {
  const Record& record = ring_[sequence % kKept];
  Signature found;
  found.sequence = record.sequence.load(std::memory_order_acquire);
  found.count = record.count.load(std::memory_order_acquire);
  found.call = record.call.load(std::memory_order_acquire);
  if (sequence == 0 || found.sequence != sequence) return std::nullopt;
  if (record.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;  // overwritten meanwhile
  return found;
}

}  // namespace nitinol::cpu
