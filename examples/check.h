/* How the examples treat errors: say what failed, and end. */
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK_CUDA(call)                                                                          \
  do {                                                                                            \
    cudaError_t result_ = (call);                                                                 \
    if (result_ != cudaSuccess) {                                                                 \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(result_)); \
      exit(EXIT_FAILURE);                                                                         \
    }                                                                                             \
  } while (0)

#define CHECK_NCCL(call)                                                                              \
  do {                                                                                                \
    ncclResult_t result_ = (call);                                                                    \
    if (result_ != ncclSuccess) {                                                                     \
      fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #call, ncclGetErrorString(result_), \
              ncclGetLastError(NULL));                                                                \
      exit(EXIT_FAILURE);                                                                             \
    }                                                                                                 \
  } while (0)

/* Ends the program unless all `count` elements of a device buffer have the value `expected`. */
static inline void expect_all(const float* device_buffer, size_t count, float expected, const char* what) {
  float* host = (float*)malloc(count * sizeof(float));
  CHECK_CUDA(cudaMemcpy(host, device_buffer, count * sizeof(float), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < count; ++i) {
    if (host[i] != expected) {
      fprintf(stderr, "%s: element %zu is %g instead of %g\n", what, i, (double)host[i], (double)expected);
      exit(EXIT_FAILURE);
    }
  }
  free(host);
}

/* A new device buffer on the current device with `count` elements of one value. */
static inline float* new_buffer(size_t count, float value) {
  float* host = (float*)malloc(count * sizeof(float));
  float* device;
  for (size_t i = 0; i < count; ++i) host[i] = value;
  CHECK_CUDA(cudaMalloc((void**)&device, count * sizeof(float)));
  CHECK_CUDA(cudaMemcpy(device, host, count * sizeof(float), cudaMemcpyHostToDevice));
  free(host);
  return device;
}
