// How fast the copy units of multiprocessors push from one GPU into another, both at once, by where the stages in
// shared memory begin within 128 bytes and by how much each of their threads has on the way. No flags, no reading, no
// waiting for the other side. Needs two GPUs of compute capability 9.0.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cuda_status.h"
#include "executor/cuda/layout.h"
#include "executor/cuda/ptx.h"

namespace {

namespace cuda = nitinol::cuda;

constexpr int kGpus = 2;
constexpr size_t kBytes = size_t{96} << 20;
constexpr int kStages = 4;
constexpr int kPending = 2;  ///< pieces that are being loaded while an older one is stored
constexpr int kMostThreads = 8;
constexpr int kTimes = 4;
constexpr int kRepeats = 3;

struct Push {
  const char* from;
  char* to;
  uint32_t piece;
  uint32_t offset;  ///< of the stages from a multiple of 128
};

extern __shared__ __align__(128) char shared[];

/// One thread of each warp copies pieces that follow each other.
__global__ void push(const __grid_constant__ Push p) {
  __shared__ uint64_t barriers[kMostThreads][kStages];
  if (threadIdx.x % 32 != 0) return;
  const uint32_t thread = threadIdx.x / 32;
  const uint32_t threads = blockDim.x / 32;
  uint64_t* const mine = barriers[thread];
  for (int i = 0; i < kStages; ++i) cuda::init_bulk_barrier(mine + i);
  cuda::fence_bulk_in_shared();
  char* const stages = shared + p.offset + thread * kStages * p.piece;
  const size_t pieces = kBytes / p.piece / (gridDim.x * threads);
  const size_t begin = (blockIdx.x * threads + thread) * pieces * p.piece;
  for (size_t i = 0; i < pieces + kPending; ++i) {
    if (i < pieces) {
      cuda::await_bulk_reads<kStages - kPending - 1>();
      cuda::expect_bulk_bytes(mine + i % kStages, p.piece);
      cuda::bulk_load(stages + i % kStages * p.piece, p.from + begin + i * p.piece, p.piece, mine + i % kStages);
    }
    if (i < kPending) continue;
    const size_t old = i - kPending;
    while (!cuda::is_phase_over(mine + old % kStages, static_cast<uint32_t>(old / kStages % 2))) {
    }
    cuda::bulk_store(p.to + begin + old * p.piece, stages + old % kStages * p.piece, p.piece);
    cuda::close_bulk_group();
  }
  cuda::await_bulk_stores<0>();
}

struct Gpu {
  char* input = nullptr;
  char* output = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
};

std::vector<Gpu> prepare() {
  std::vector<Gpu> gpus(kGpus);
  for (int i = 0; i < kGpus; ++i) {
    Gpu& gpu = gpus[static_cast<size_t>(i)];
    check(cudaSetDevice(i), "cudaSetDevice");
    check(cudaDeviceEnablePeerAccess(1 - i, 0), "cudaDeviceEnablePeerAccess");
    check(cudaMalloc(&gpu.input, kBytes), "cudaMalloc");
    check(cudaMalloc(&gpu.output, kBytes), "cudaMalloc");
    check(cudaMemset(gpu.input, i, kBytes), "cudaMemset");
    check(cudaStreamCreate(&gpu.stream), "cudaStreamCreate");
    check(cudaEventCreate(&gpu.start), "cudaEventCreate");
    check(cudaEventCreate(&gpu.stop), "cudaEventCreate");
    check(cudaFuncSetAttribute(push, cudaFuncAttributeMaxDynamicSharedMemorySize, 220 * 1024), "cudaFuncSetAttribute");
  }
  return gpus;
}

/// Of the slower GPU.
double gigabytes_per_second(const std::vector<Gpu>& gpus, int ctas, int threads, uint32_t piece, uint32_t offset) {
  float best = 1e9F;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (int k = 0; k <= kTimes; ++k) {
      for (int i = 0; i < kGpus; ++i) {
        const Gpu& gpu = gpus[static_cast<size_t>(i)];
        check(cudaSetDevice(i), "cudaSetDevice");
        if (k == 1) check(cudaEventRecord(gpu.start, gpu.stream), "cudaEventRecord");
        const Push work{gpu.input, gpus[static_cast<size_t>(1 - i)].output, piece, offset};
        push<<<ctas, threads * 32, offset + threads * kStages * piece, gpu.stream>>>(work);
        check(cudaGetLastError(), "launch");
        if (k == kTimes) check(cudaEventRecord(gpu.stop, gpu.stream), "cudaEventRecord");
      }
    }
    float slower = 0;
    for (const Gpu& gpu : gpus) {
      float ms = 0;
      check(cudaEventSynchronize(gpu.stop), "cudaEventSynchronize");
      check(cudaEventElapsedTime(&ms, gpu.start, gpu.stop), "cudaEventElapsedTime");
      slower = std::max(slower, ms / kTimes);
    }
    best = std::min(best, slower);
  }
  return static_cast<double>(kBytes) / best * 1e-6;
}

void run() {
  const std::vector<Gpu> gpus = prepare();
  for (const uint32_t offset : {0U, 64U, 16U}) {
    for (const int threads : {1, 4}) {
      for (const uint32_t piece : {2048U, 4096U, 8192U}) {
        std::printf("stages %2u bytes behind a multiple of 128, %d threads, pieces of %4u bytes, GB/s:", offset,
                    threads, piece);
        for (const int ctas : {8, 16, 32, 64}) {
          std::printf("  %2d CTAs %5.1f", ctas, gigabytes_per_second(gpus, ctas, threads, piece, offset));
        }
        std::printf("\n");
      }
    }
  }
}

}  // namespace

int main(int, char** argv) { return status_of(argv[0], run); }
