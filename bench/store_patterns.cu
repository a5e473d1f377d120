// How fast GPUs store into each other's memory when all do so at once, by the order in which each serves the others:
// what an algorithm can hope for. No flags, no reading, no waiting. Usage: store_patterns [GPUS]
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "cuda_status.h"

namespace {

constexpr int kMostPeers = 7;
constexpr size_t kPerPeer = size_t{64} << 20;
constexpr int kInFlight = 8;  ///< stores of 16 bytes by a thread
constexpr int kThreads = 256;
constexpr size_t kBatch = size_t{kThreads} * 16 * kInFlight;  ///< bytes that a CTA moves at once
constexpr int kTimes = 4;
constexpr int kRepeats = 3;

enum class Order { kNextAlone, kOneAfterTheOther, kInTurn, kAllAtOnce };

struct Stores {
  const char* from;
  char* to[kMostPeers];  ///< nearest successor first
  int peers;
  Order order;
  size_t chunk;  ///< for each peer in turn
  bool apart;    ///< CTAs begin with different peers; with kAllAtOnce warps do
};

struct Batch {
  uint4 units[kInFlight];
};

__device__ Batch load(const char* from) {
  Batch batch;
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) batch.units[u] = reinterpret_cast<const uint4*>(from)[threadIdx.x + u * kThreads];
  return batch;
}
__device__ void store(char* to, const Batch& batch) {
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) reinterpret_cast<uint4*>(to)[threadIdx.x + u * kThreads] = batch.units[u];
}

/// The CTA's share of what goes to each peer, other bytes to each.
__device__ void store_in_turn(const Stores& s, size_t begin, size_t share) {
  const int first = s.apart ? static_cast<int>(blockIdx.x) % s.peers : 0;
  const size_t chunk = s.order == Order::kOneAfterTheOther ? share : s.chunk;
  for (size_t done = 0; done < share; done += chunk) {
    const size_t end = min(done + chunk, share);
    for (int turn = 0; turn < s.peers; ++turn) {
      const int to = s.order == Order::kNextAlone ? 0 : (first + turn) % s.peers;
      const char* const from = s.from + static_cast<size_t>(to) * kPerPeer + begin;
      for (size_t at = done; at < end; at += kBatch) store(s.to[to] + begin + at, load(from + at));
    }
  }
}

__device__ void store_to_all(const Stores& s, size_t begin, size_t share) {
  const int first = s.apart ? static_cast<int>(threadIdx.x / 32) % s.peers : 0;
  for (size_t at = begin; at < begin + share; at += kBatch) {
    const Batch batch = load(s.from + at);
    for (int turn = 0; turn < s.peers; ++turn) store(s.to[(first + turn) % s.peers] + at, batch);
  }
}

__global__ void __launch_bounds__(kThreads) store_all(const __grid_constant__ Stores s) {
  const size_t share = kPerPeer / gridDim.x / kBatch * kBatch;
  const size_t begin = blockIdx.x * share;
  if (s.order == Order::kAllAtOnce) {
    store_to_all(s, begin, share);
  } else {
    store_in_turn(s, begin, share);
  }
}

struct Gpu {
  char* input = nullptr;
  char* output = nullptr;  ///< a part for each peer, nearest predecessor first
  cudaStream_t stream = nullptr;
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
};

std::vector<Gpu> prepare(int count) {
  std::vector<Gpu> gpus(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    Gpu& gpu = gpus[static_cast<size_t>(i)];
    check(cudaSetDevice(i), "cudaSetDevice");
    for (int other = 0; other < count; ++other) {
      if (other != i) check(cudaDeviceEnablePeerAccess(other, 0), "cudaDeviceEnablePeerAccess");
    }
    check(cudaMalloc(&gpu.input, kPerPeer * kMostPeers), "cudaMalloc");
    check(cudaMalloc(&gpu.output, kPerPeer * kMostPeers), "cudaMalloc");
    check(cudaMemset(gpu.input, i, kPerPeer * kMostPeers), "cudaMemset");
    check(cudaStreamCreate(&gpu.stream), "cudaStreamCreate");
    check(cudaEventCreate(&gpu.start), "cudaEventCreate");
    check(cudaEventCreate(&gpu.stop), "cudaEventCreate");
  }
  return gpus;
}

/// Milliseconds of one kernel on the slowest GPU; all begin together but for the launches, so one goes before.
float time_once(const std::vector<Gpu>& gpus, Stores stores, int ctas) {
  const int count = static_cast<int>(gpus.size());
  for (int i = 0; i < count; ++i) {
    const Gpu& gpu = gpus[static_cast<size_t>(i)];
    check(cudaSetDevice(i), "cudaSetDevice");
    stores.from = gpu.input;
    for (int p = 0; p < count - 1; ++p) {
      stores.to[p] = gpus[static_cast<size_t>((i + 1 + p) % count)].output + static_cast<size_t>(p) * kPerPeer;
    }
    for (int k = 0; k <= kTimes; ++k) {
      if (k == 1) check(cudaEventRecord(gpu.start, gpu.stream), "cudaEventRecord");
      store_all<<<ctas, kThreads, 0, gpu.stream>>>(stores);
      check(cudaGetLastError(), "launch");
    }
    check(cudaEventRecord(gpu.stop, gpu.stream), "cudaEventRecord");
  }
  float slowest = 0;
  for (const Gpu& gpu : gpus) {
    float ms = 0;
    check(cudaEventSynchronize(gpu.stop), "cudaEventSynchronize");
    check(cudaEventElapsedTime(&ms, gpu.start, gpu.stop), "cudaEventElapsedTime");
    slowest = std::max(slowest, ms / kTimes);
  }
  return slowest;
}

void measure(const std::vector<Gpu>& gpus, const char* name, Order order, size_t chunk, bool apart, int ctas) {
  Stores stores{};
  stores.peers = static_cast<int>(gpus.size()) - 1;
  stores.order = order;
  stores.chunk = chunk;
  stores.apart = apart;
  float best = time_once(gpus, stores, ctas);
  for (int repeat = 1; repeat < kRepeats; ++repeat) best = std::min(best, time_once(gpus, stores, ctas));
  const double share = static_cast<double>(kPerPeer / static_cast<size_t>(ctas) / kBatch * kBatch);
  std::printf("%3d CTAs, %-22s chunks of %4zu KB, beginning %s: %6.1f GB/s\n", ctas, name, chunk >> 10,
              apart ? "apart" : "alike", share * ctas * stores.peers / best * 1e-6);
}

void run(int count) {
  const std::vector<Gpu> gpus = prepare(count);
  for (const int ctas : {32, 64, 128}) {
    measure(gpus, "to the next alone", Order::kNextAlone, kBatch, false, ctas);
    measure(gpus, "one after the other", Order::kOneAfterTheOther, kBatch, false, ctas);
    for (const bool apart : {false, true}) {
      for (const size_t chunk : {size_t{128} << 10, size_t{32} << 10}) {
        measure(gpus, "each in turn", Order::kInTurn, chunk, apart, ctas);
      }
      measure(gpus, "the same to all", Order::kAllAtOnce, kBatch, apart, ctas);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return status_of("store_patterns", [&] {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    const int count = argc > 1 ? std::atoi(argv[1]) : devices;
    if (count < 2 || count > std::min(devices, kMostPeers + 1)) {
      throw std::runtime_error("needs 2 to 8 GPUs, as many as there are at most");
    }
    run(count);
  });
}
