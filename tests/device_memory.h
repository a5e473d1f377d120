// Fills device memory for tests whose streams do not block: they do not wait for what CUDA's own calls may still have
// to do when they return (CUDA Runtime API, "API synchronization behavior").
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace nitinol {

/// Copies from the program's memory, and waits until all of it has arrived.
inline cudaError_t copy_to_device(void* to, const void* from, size_t bytes) {
  const cudaError_t copied = cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);
  return copied != cudaSuccess ? copied : cudaStreamSynchronize(nullptr);
}

/// Sets each byte to `value`, and waits until all are.
inline cudaError_t set_on_device(void* to, int value, size_t bytes) {
  const cudaError_t set = cudaMemset(to, value, bytes);
  return set != cudaSuccess ? set : cudaStreamSynchronize(nullptr);
}

}  // namespace nitinol
