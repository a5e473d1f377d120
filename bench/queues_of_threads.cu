// Whether kernels of several streams run at the same time if a thread for each launches them at the same moment. They
// wait for each other, for a while; where two streams came to share a hardware queue they wait in vain.
#include <cuda_runtime.h>

#include <array>
#include <barrier>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda_status.h"

namespace {

constexpr int kStreams = 4;
constexpr int kRounds = 20;
constexpr unsigned long long kPatience = 40'000'000;  ///< nanoseconds

enum class How { kAtOnce, kWithALock, kGraphs, kUploadedGraphs };

struct Meeting {
  int* arrived;
  int* in_vain;
  int kernel;
};

__device__ unsigned long long nanoseconds_now() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void meet(Meeting meeting) {
  atomicAdd(meeting.arrived + meeting.kernel, 1);
  const unsigned long long start = nanoseconds_now();
  while (atomicAdd(meeting.arrived + meeting.kernel, 0) < kStreams) {
    if (nanoseconds_now() - start < kPatience) continue;
    atomicAdd(meeting.in_vain, 1);
    return;
  }
}

void launch(cudaStream_t stream, Meeting meeting, int kernels, std::mutex* lock) {
  for (meeting.kernel = 0; meeting.kernel < kernels; ++meeting.kernel) {
    if (lock != nullptr) lock->lock();
    meet<<<1, 1, 0, stream>>>(meeting);
    if (lock != nullptr) lock->unlock();
  }
}

cudaGraphExec_t capture(cudaStream_t stream, const Meeting& meeting, int kernels) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t instance = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  launch(stream, meeting, kernels, nullptr);
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&instance, graph, 0), "cudaGraphInstantiate");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return instance;
}

/// Whether all kernels met.
bool meet_once(How how, int kernels, int* memory) {
  constexpr size_t kBytes = 64 * sizeof(int);
  check(cudaMemset(memory, 0, kBytes), "cudaMemset");
  const Meeting meeting{memory + 1, memory, 0};
  std::array<cudaStream_t, kStreams> streams{};
  std::array<cudaGraphExec_t, kStreams> graphs{};
  const bool in_graphs = how == How::kGraphs || how == How::kUploadedGraphs;
  for (size_t i = 0; i < kStreams; ++i) {
    check(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    if (in_graphs) graphs[i] = capture(streams[i], meeting, kernels);
    if (how == How::kUploadedGraphs) check(cudaGraphUpload(graphs[i], streams[i]), "cudaGraphUpload");
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::barrier together(kStreams);
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      check(cudaSetDevice(0), "cudaSetDevice");
      together.arrive_and_wait();
      if (in_graphs) {
        check(cudaGraphLaunch(graphs[i], streams[i]), "cudaGraphLaunch");
      } else {
        launch(streams[i], meeting, kernels, how == How::kWithALock ? &mutex : nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int in_vain = 0;
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check(cudaMemcpy(&in_vain, memory, sizeof(int), cudaMemcpyDeviceToHost), "cudaMemcpy");
  for (size_t i = 0; i < kStreams; ++i) {
    if (in_graphs) check(cudaGraphExecDestroy(graphs[i]), "cudaGraphExecDestroy");
    check(cudaStreamDestroy(streams[i]), "cudaStreamDestroy");
  }
  return in_vain == 0;
}

void run() {
  int* memory = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&memory), 4096), "cudaMalloc");
  cudaFuncAttributes loaded{};
  check(cudaFuncGetAttributes(&loaded, reinterpret_cast<const void*>(&meet)), "cudaFuncGetAttributes");
  constexpr std::array<const char*, 4> kNames = {"at once", "with a lock", "graphs", "uploaded graphs"};
  std::printf("of %d times that %d threads launch into fresh streams, so often not all kernels ran together:\n",
              kRounds, kStreams);
  for (size_t how = 0; how < kNames.size(); ++how) {
    for (const int kernels : {1, 3, 10}) {
      int apart = 0;
      for (int round = 0; round < kRounds; ++round) apart += meet_once(static_cast<How>(how), kernels, memory) ? 0 : 1;
      std::printf("%-16s %2d kernels: %2d\n", kNames[how], kernels, apart);
    }
  }
  check(cudaFree(memory), "cudaFree");
}

}  // namespace

int main() { return status_of("queues_of_threads", run); }
