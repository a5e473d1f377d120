// Reads from the host's signals for whom kernels wait, and in what.
#pragma once

#include <array>
#include <cstdint>

#include "executor/cuda/parameters.h"
#include "executor/kernel_waits.h"
#include "executor/packed_call.h"

namespace nitinol::cuda {

class KernelWaitReader {
 public:
  explicit KernelWaitReader(const volatile Signals& signals) : signals_(signals) {}

  /// What kernels have told since the last call, at least some ten milliseconds ago: those that wait tell it again
  /// every few. Only of waits that are long, and one each: a program that waits here and there all the time, for this
  /// and that, is none that stands still.
  KernelWait read() {
    KernelWait wait;
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      uint32_t& seen = seen_[static_cast<size_t>(rank)];
      const uint32_t told = signals_.waits[rank];
      if (told != seen && told >= kLong) wait.add(rank);
      seen = told;
    }
    const uint32_t call = signals_.call;
    if (!wait.any() || call == 0) return wait;
    wait.collective = Signature{0, signals_.count, unpacked_call(call)};
    wait.among_several = (call >> 4 & kAmongSeveral) != 0;  // as packed_call() has it
    return wait;
  }

 private:
  static constexpr uint32_t kLong = 200;  ///< as in Signals::waits: longer than what lies between looks

  const volatile Signals& signals_;
  std::array<uint32_t, kMaxRanks> seen_{};
};

}  // namespace nitinol::cuda
