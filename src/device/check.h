// Turns a CUDA runtime error into an Error. Works the same over the toolkit's runtime and over virtual GPUs.
#pragma once

#include <cuda_runtime.h>

#include "base/error.h"

namespace nitinol {

/// Throws Error(ncclUnhandledCudaError, "<what>: <name>: <text>") unless the call succeeded. Clears the thread's last
/// error.
inline void cuda_check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  fail(ncclUnhandledCudaError, "{}: {}: {}", what, cudaGetErrorName(status), cudaGetErrorString(status));
}

}  // namespace nitinol
