// Checks of CUDA calls for programs that nvcc compiles: the library's own are not for it.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}
