// Functions of the CUDA driver for which the runtime has no counterpart, or a slower one. Virtual GPUs have no driver.
#pragma once

#include <cuda_runtime.h>

namespace nitinol {

/// Looked up at run time, so that the library does not need libcuda to load. As CUDA `version` has it (12040: 12.4);
/// null if the driver has none of that name, or is older.
template <class Function>
Function driver_function(const char* name, unsigned int version = 12000) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found);
  if (status == cudaSuccess && found == cudaDriverEntryPointSuccess) return reinterpret_cast<Function>(address);
  static_cast<void>(cudaGetLastError());
  return nullptr;
}

}  // namespace nitinol
