// Streams of green contexts, whose kernels have some of a GPU's multiprocessors alone.
#pragma once

#include <cuda_runtime.h>

namespace nitinol::cuda {

/// Whether a stream is one of a green context: then fewer CTAs may be resident at once than the GPU has room for, and
/// those that wait for each other have to stand together in a launch.
bool is_of_green_context(cudaStream_t stream);

}  // namespace nitinol::cuda
