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
  /// every few.
  KernelWait read() {
    KernelWait wait;
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      uint32_t& seen = seen_[static_cast<size_t>(rank)];
      const uint32_t told = signals_.waits[rank];
      if (told != seen) wait.add(rank);
      seen = told;
    }
    const uint32_t call = signals_.call;
    if (wait.any() && call != 0) wait.collective = Signature{0, signals_.count, unpacked_call(call)};
    return wait;
  }

 private:
  const volatile Signals& signals_;
  std::array<uint32_t, kMaxRanks> seen_{};
};

}  // namespace nitinol::cuda
