// A GPU takes work from a few hardware queues. Streams that share one stand in line behind each other's kernels, which
// must not happen to kernels that wait for each other: those of ranks of one process that share a GPU.
#pragma once

#include "executor/executor.h"

namespace nitinol::cuda {

/// Throws Error(ncclInvalidUsage) if more ranks of this process share a GPU than it has queues for.
void check_queues(const ExecutorSetup& setup);

}  // namespace nitinol::cuda
