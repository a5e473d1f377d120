// What it matters on which multiprocessors CTAs are that store into another GPU, and into their own memory too, as a
// broadcast's root does: where CUDA puts them by itself, and in clusters, which it puts close together. GPU 1 stores,
// GPU 0 is idle. Usage: cta_places
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "cuda_status.h"

namespace {

constexpr size_t kBytes = size_t{256} << 20;
constexpr int kInFlight = 8;  ///< loads of 16 bytes by a thread
constexpr int kThreads = 512;
constexpr int kRepeats = 4;

struct Buffers {
  const uint4* from;
  uint4* near;  ///< null: nothing is stored there
  uint4* far;
};

__global__ void __launch_bounds__(kThreads) store_all(const __grid_constant__ Buffers buffers) {
  const size_t all = kBytes / sizeof(uint4);
  const size_t share = all / gridDim.x / (kThreads * kInFlight) * (kThreads * kInFlight);
  const size_t begin = blockIdx.x * share;
  for (size_t at = begin + threadIdx.x; at < begin + share; at += kThreads * kInFlight) {
    uint4 units[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) units[u] = buffers.from[at + kThreads * u];
    if (buffers.near != nullptr) {
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) buffers.near[at + kThreads * u] = units[u];
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) buffers.far[at + kThreads * u] = units[u];
  }
}

void launch(const Buffers& buffers, unsigned ctas, unsigned cluster) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = ctas;
  config.blockDim = kThreads;
  config.attrs = &attribute;
  config.numAttrs = cluster > 1 ? 1 : 0;
  check(cudaLaunchKernelEx(&config, store_all, buffers), "launch");
}

/// GB/s into the other GPU, the best of a few.
double measure(const Buffers& buffers, unsigned ctas, unsigned cluster, cudaEvent_t start, cudaEvent_t stop) {
  const size_t step = ctas * size_t{kThreads} * kInFlight * sizeof(uint4);
  float best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    check(cudaEventRecord(start), "cudaEventRecord");
    launch(buffers, ctas, cluster);
    check(cudaEventRecord(stop), "cudaEventRecord");
    check(cudaEventSynchronize(stop), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "cudaEventElapsedTime");
    best = repeat == 0 ? ms : std::min(best, ms);
  }
  return static_cast<double>(kBytes / step * step) / best * 1e-6;
}

uint4* allocate(int device) {
  void* memory = nullptr;
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaMalloc(&memory, kBytes), "cudaMalloc");
  return static_cast<uint4*>(memory);
}

void run() {
  uint4* const far = allocate(0);
  const Buffers both{allocate(1), allocate(1), far};
  const Buffers far_alone{both.from, nullptr, far};
  check(cudaDeviceEnablePeerAccess(0, 0), "cudaDeviceEnablePeerAccess");
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  check(cudaEventCreate(&start), "cudaEventCreate");
  check(cudaEventCreate(&stop), "cudaEventCreate");
  for (const unsigned ctas : {8U, 16U, 24U, 32U, 48U, 64U, 96U}) {
    for (const unsigned cluster : {1U, 2U, 4U, 8U}) {
      std::printf("%2u CTAs in clusters of %u: %6.1f GB/s, and into their own memory too %6.1f\n", ctas, cluster,
                  measure(far_alone, ctas, cluster, start, stop), measure(both, ctas, cluster, start, stop));
    }
  }
}

}  // namespace

int main() { return status_of("cta_places", run); }
