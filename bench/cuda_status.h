// Checks of CUDA calls for programs that nvcc compiles: the library's own are not for it.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

/// The exit status of a program that does `run` and says what went wrong.
template <class Run>
int status_of(const char* program, Run run) {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program, error.what());
    return 1;
  }
  return 0;
}
