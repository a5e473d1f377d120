// Fills device memory for tests whose streams do not block.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace nitinol {

/// Copies from the program's memory, and waits until all of it has arrived: cudaMemcpy may return before (CUDA Runtime
/// API, "API synchronization behavior"), and streams that do not block do not wait for it.
inline cudaError_t copy_to_device(void* to, const void* from, size_t bytes) {
  const cudaError_t copied = cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);
  return copied != cudaSuccess ? copied : cudaStreamSynchronize(nullptr);
}

}  // namespace nitinol
