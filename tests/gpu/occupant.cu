#include "occupant.h"

namespace {

constexpr int kThreads = 1024;   // two CTAs have all threads of a multiprocessor
constexpr int kCorners = 4;      // CTAs fewer
constexpr int kTurns = 100'000;  // of some 100 us

__global__ void __launch_bounds__(kThreads, 2) stay(const volatile int* leave) {
  if (threadIdx.x == 0) {
    for (int turn = 0; turn < kTurns && *leave == 0; ++turn) __nanosleep(100'000);
  }
  __syncthreads();
}

}  // namespace

cudaError_t nitinol::gpu_testing::occupy(const volatile int* leave, cudaStream_t stream) {
  int device = 0;
  int multiprocessors = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  // Beside others multiprocessors take no CTAs that use shared memory.
  if (status == cudaSuccess) status = cudaFuncSetAttribute(stay, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
  if (status != cudaSuccess) return status;
  stay<<<2 * multiprocessors - kCorners, kThreads, 0, stream>>>(leave);
  return cudaGetLastError();
}
