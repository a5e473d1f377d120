// Work that leaves a GPU hardly any room.
#pragma once

#include <cuda_runtime.h>

namespace nitinol::gpu_testing {

/// Keeps all but some corners of the current GPU for itself until `leave`, which the GPU sees, is not zero, but for ten
/// seconds at most.
cudaError_t occupy(const volatile int* leave, cudaStream_t stream);

}  // namespace nitinol::gpu_testing
