// How fast CTAs store into the memory of another GPU, chunk by chunk into four slots in turn, and how long the fence
// takes that a warp of its own puts behind each chunk while the others go on, as the clerk of the kernels does
// (Simple). GPU 1 stores, GPU 0 is idle. Usage: remote_stores
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "cuda_status.h"

namespace {

constexpr size_t kBytes = size_t{256} << 20;
constexpr size_t kSlots = 4;
constexpr int kInFlight = 8;  ///< stores of 16 bytes by a thread
constexpr int kMostWorkers = 16;
constexpr int kRepeats = 3;

struct Stores {
  const char* from;
  char* to;
  size_t chunk;
  uint32_t* flags;     ///< a line for each CTA, on the other GPU
  uint32_t* fence_ns;  ///< for each CTA and chunk
};

__device__ uint64_t nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

__device__ void store_chunk(const char* from, char* to, size_t bytes, unsigned threads) {
  for (size_t first = threadIdx.x; first < bytes / 16; first += size_t{threads} * kInFlight) {
    uint4 units[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) units[u] = reinterpret_cast<const uint4*>(from)[first + size_t{threads} * u];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) reinterpret_cast<uint4*>(to)[first + size_t{threads} * u] = units[u];
  }
}

__global__ void store_all(const __grid_constant__ Stores stores) {
  __shared__ volatile uint32_t done[kMostWorkers];
  const unsigned workers = blockDim.x / 32 - 1;
  const unsigned warp = threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  if (threadIdx.x < workers) done[threadIdx.x] = 0;
  __syncthreads();
  const auto chunks = static_cast<uint32_t>(kBytes / gridDim.x / stores.chunk);
  const size_t share = chunks * stores.chunk;
  for (uint32_t k = 0; k < chunks; ++k) {
    if (warp < workers) {
      store_chunk(stores.from + blockIdx.x * share + k * stores.chunk,
                  stores.to + (blockIdx.x * kSlots + k % kSlots) * stores.chunk, stores.chunk, workers * 32);
      __threadfence_block();
      __syncwarp();
      if (lane == 0) done[warp] = k + 1;
      continue;
    }
    while (!__all_sync(0xffffffffU, lane >= workers || done[lane] > k)) {
    }
    const uint64_t began = nanoseconds();
    __threadfence_system();
    if (lane == 0) {
      stores.fence_ns[blockIdx.x * chunks + k] = static_cast<uint32_t>(nanoseconds() - began);
      *static_cast<volatile uint32_t*>(stores.flags + blockIdx.x * 32) = k + 1;
    }
  }
}

void measure(const Stores& stores, int workers, int ctas, cudaEvent_t start, cudaEvent_t stop) {
  const size_t chunks = kBytes / static_cast<size_t>(ctas) / stores.chunk;
  float best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    check(cudaEventRecord(start), "cudaEventRecord");
    store_all<<<ctas, (workers + 1) * 32>>>(stores);
    check(cudaGetLastError(), "launch");
    check(cudaEventRecord(stop), "cudaEventRecord");
    check(cudaEventSynchronize(stop), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, stop), "cudaEventElapsedTime");
    best = repeat == 0 ? ms : std::min(best, ms);
  }
  std::vector<uint32_t> fences(static_cast<size_t>(ctas) * chunks);
  check(cudaMemcpy(fences.data(), stores.fence_ns, fences.size() * sizeof(uint32_t), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  std::sort(fences.begin(), fences.end());
  const double bytes = static_cast<double>(stores.chunk * chunks) * ctas;
  std::printf("%2d workers, %3d CTAs, chunks of %3zu KB: %6.1f GB/s, fence %5u ns median, %5u ns most\n", workers, ctas,
              stores.chunk >> 10, bytes / best * 1e-6, fences[fences.size() / 2], fences.back());
}

void* allocate(int device, size_t bytes) {
  void* memory = nullptr;
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  return memory;
}

void run() {
  Stores stores{};
  stores.to = static_cast<char*>(allocate(0, kBytes));
  stores.flags = static_cast<uint32_t*>(allocate(0, 1 << 16));
  stores.from = static_cast<const char*>(allocate(1, kBytes));
  stores.fence_ns = static_cast<uint32_t*>(allocate(1, 1 << 20));
  check(cudaDeviceEnablePeerAccess(0, 0), "cudaDeviceEnablePeerAccess");
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  check(cudaEventCreate(&start), "cudaEventCreate");
  check(cudaEventCreate(&stop), "cudaEventCreate");
  for (const int workers : {8, 16}) {
    for (const int ctas : {8, 16, 24, 32, 48, 64, 128}) {
      for (const size_t chunk : {size_t{128} << 10, size_t{256} << 10}) {
        stores.chunk = chunk;
        measure(stores, workers, ctas, start, stop);
      }
    }
  }
}

}  // namespace

int main() { return status_of("remote_stores", run); }
