// The machines that tests of sizes ask about.
#pragma once

#include "executor/cuda/machine.h"

namespace nitinol::cuda {

inline Machine machine(int ranks, int ranks_per_gpu = 1, int multiprocessors = 132) {
  return Machine{.ranks = ranks, .ranks_per_gpu = ranks_per_gpu, .multiprocessors = multiprocessors};
}

}  // namespace nitinol::cuda
