// Which ways a communicator's collectives may go: the kernels of others need not be loaded.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "executor/cuda/kernel_set.h"
#include "executor/cuda/sizes.h"

namespace nitinol::cuda {

class Ways {
 public:
  void add(Collective what, Way way) { bits_[static_cast<size_t>(what)] |= bit_of(way); }
  bool has(Collective what, Way way) const { return (bits_[static_cast<size_t>(what)] & bit_of(way)) != 0; }

 private:
  static constexpr uint32_t bit_of(Way way) { return 1U << static_cast<int>(way); }

  std::array<uint32_t, kCollectives> bits_{};
};

/// How a plan goes that is not brief, with the queue set of its protocol.
Way way_of(const Plan& plan, Queue queue);

/// All that tuning may choose where these sizes are offered, whatever the user allows.
Ways ways_of(const Sizes& sizes);

/// Those by which anything goes that may be chosen so, and messages.
std::vector<Queue> queues_of(const Sizes& sizes);

}  // namespace nitinol::cuda
