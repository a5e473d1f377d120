// The collectives that a rank began last, in its arena: peers read them when the tag on a piece of data is wrong, or
// when nothing comes.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "model/shared_log.h"
#include "model/signature.h"

namespace nitinol::cpu {

/// Written by its rank alone, read by all; in shared memory, all zero at first.
class Records {
 public:
  static constexpr size_t kKept = 32;

  void begin(const Signature& signature) { log_.add(signature.sequence, {signature.count, signature.call}); }
  void end(uint64_t sequence) { ended_.store(sequence, std::memory_order_release); }

  uint64_t begun() const { return log_.last(); }
  uint64_t ended() const { return ended_.load(std::memory_order_acquire); }
  /// Nothing if it was not begun yet, or is too long ago.
  std::optional<Signature> find(uint64_t sequence) const {
    const auto found = log_.find(sequence);
    if (!found) return std::nullopt;
    return Signature{sequence, (*found)[0], (*found)[1]};
  }

 private:
  std::atomic<uint64_t> ended_;
  SharedLog<kKept, 2> log_;
};

}  // namespace nitinol::cpu
