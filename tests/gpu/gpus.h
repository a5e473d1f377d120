// What tests that need GPUs begin with.
#pragma once

#include <cuda_runtime.h>

#include "device_memory.h"

/// In a function that returns nothing, of a test whose file includes nccl.h and gtest.h.
#define CUDA_OK(call) ASSERT_EQ(call, cudaSuccess)
#define NCCL_OK(call) ASSERT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)
/// In a test that needs a GPU.
#define REQUIRE_GPU() \
  if (nitinol::gpu_testing::gpus() == 0) GTEST_SKIP() << "no GPU here"

namespace nitinol::gpu_testing {

/// How many GPUs there are.
inline int gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  return count;
}

}  // namespace nitinol::gpu_testing
