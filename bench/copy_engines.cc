// How fast copy engines push chunks into the memory of other GPUs: all GPUs at once, each from its own memory to all
// others in rotation, a chunk at a time, dealt out over some streams. Usage: copy_engines [MEGABYTES per GPU]
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "device/check.h"
#include "device/stream.h"

namespace {

using nitinol::cuda_check;

constexpr size_t kLargestChunk = size_t{64} << 20;
constexpr int kMostStreams = 4;
constexpr int kRepeats = 5;

struct Gpu {
  char* from = nullptr;
  char* to = nullptr;
  std::vector<nitinol::Stream> streams;
};

std::vector<Gpu> set_up(int count) {
  std::vector<Gpu> gpus(static_cast<size_t>(count));
  for (int device = 0; device < count; ++device) {
    Gpu& gpu = gpus[static_cast<size_t>(device)];
    cuda_check(cudaSetDevice(device), "cudaSetDevice");
    for (int peer = 0; peer < count; ++peer) {
      if (peer != device) cuda_check(cudaDeviceEnablePeerAccess(peer, 0), "cudaDeviceEnablePeerAccess");
    }
    void* memory[2] = {};
    for (void*& one : memory) cuda_check(cudaMalloc(&one, kLargestChunk), "cudaMalloc");
    gpu.from = static_cast<char*>(memory[0]);
    gpu.to = static_cast<char*>(memory[1]);
    for (int i = 0; i < kMostStreams; ++i) gpu.streams.push_back(nitinol::Stream::create_urgent());
  }
  return gpus;
}

/// Microseconds until all GPUs have made all their copies.
double run(const std::vector<Gpu>& gpus, size_t chunk, size_t copies, size_t streams) {
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < copies; ++i) {
    for (size_t me = 0; me < gpus.size(); ++me) {
      cuda_check(cudaSetDevice(static_cast<int>(me)), "cudaSetDevice");
      const size_t peer = (me + 1 + i % (gpus.size() - 1)) % gpus.size();
      const size_t at = i * chunk % kLargestChunk;
      cuda_check(cudaMemcpyAsync(gpus[peer].to + at, gpus[me].from + at, chunk, cudaMemcpyDefault,
                                 gpus[me].streams[i % streams].get()),
                 "cudaMemcpyAsync");
    }
  }
  for (size_t me = 0; me < gpus.size(); ++me) {
    cuda_check(cudaSetDevice(static_cast<int>(me)), "cudaSetDevice");
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) try {
  const size_t bytes = (argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 384) << 20;
  int count = 0;
  cuda_check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (count < 2) {
    std::printf("needs two GPUs\n");
    return 77;
  }
  const std::vector<Gpu> gpus = set_up(count);
  std::printf("streams,chunk_kib,copies,us,gb_per_s,us_a_copy\n");
  for (const size_t streams : {1, 2, 4}) {
    for (size_t chunk = size_t{256} << 10; chunk <= kLargestChunk; chunk *= 4) {
      const size_t copies = std::max<size_t>(1, bytes / chunk);
      double best = run(gpus, chunk, copies, streams);
      for (int i = 1; i < kRepeats; ++i) best = std::min(best, run(gpus, chunk, copies, streams));
      std::printf("%zu,%zu,%zu,%.0f,%.0f,%.1f\n", streams, chunk >> 10, copies, best,
                  static_cast<double>(chunk * copies) / best * 1e-3, best / static_cast<double>(copies));
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
