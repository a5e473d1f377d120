// In what order GPUs begin the CTAs of a kernel: in that of their numbers, also where there is not room for all of them
// at once? Whoever waits in a message concludes from it what else of a kernel has begun (src/executor/kernel_waits.h).
// Prints by how much a CTA has begun after one with a higher number at most: as far as two that begin at the same
// moment read the clock at different moments, that is something. Usage: cta_order
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cuda_status.h"

namespace {

constexpr int kCtas = 320;     // as many as carry messages at most
constexpr int kThreads = 256;  // and so many threads have those
constexpr int kRepeats = 50;
constexpr unsigned kMs = 1'000'000;  // in ns

__device__ unsigned long long now() {
  unsigned long long time = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}
__device__ void stay(unsigned long long until) {
  while (now() < until) __nanosleep(1000);
}

__global__ void __launch_bounds__(kThreads, 2) note_begin(unsigned long long* began, unsigned stays) {
  const unsigned long long time = now();
  if (threadIdx.x == 0) {
    began[blockIdx.x] = time;
    stay(time + stays);
  }
  __syncthreads();
}

/// Two of its CTAs fill a multiprocessor. Each leaves at another time.
__global__ void __launch_bounds__(1024, 2) occupy(unsigned longest, unsigned seed) {
  if (threadIdx.x == 0) {
    const unsigned mixed = (blockIdx.x + seed) * 2654435761U;
    stay(now() + longest / 2 + (mixed >> 8) % (longest / 2));
  }
  __syncthreads();
}

/// In microseconds.
double latest_after_a_higher(const std::vector<unsigned long long>& began) {
  unsigned long long least = began.back();
  unsigned long long most = 0;
  for (size_t i = began.size(); i-- > 0;) {
    if (began[i] > least) most = std::max(most, began[i] - least);
    least = std::min(least, began[i]);
  }
  return static_cast<double>(most) / 1000;
}

struct Case {
  const char* text;
  int occupants;   ///< beside 2 for each multiprocessor, as a part of 4
  unsigned stays;  ///< ns that CTAs stay
  bool graph;
};

class Bench {
 public:
  Bench() {
    check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
    for (cudaStream_t* const each : {&beside_, &stream_}) {
      check(cudaStreamCreateWithFlags(each, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    check(cudaMalloc(&began_, kCtas * sizeof(*began_)), "cudaMalloc");
    note(0);  // loads the kernels
    occupy<<<1, 1024, 0, beside_>>>(2, 0);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  void show(const Case& c) const {
    double latest = 0;
    double lasted = 0;
    for (unsigned repeat = 0; repeat < kRepeats; ++repeat) {
      const std::vector<unsigned long long> began = run(c, repeat);
      const auto [first, last] = std::minmax_element(began.begin(), began.end());
      lasted = std::max(lasted, static_cast<double>(*last - *first) / 1000);
      latest = std::max(latest, latest_after_a_higher(began));
    }
    std::printf("%-52s %s: the last began %8.1f us after the first; one began %6.1f us after a higher one\n", c.text,
                c.graph ? "graph" : "eager", lasted, latest);
  }

 private:
  void note(unsigned stays) const {
    note_begin<<<kCtas, kThreads, 0, stream_>>>(began_, stays);
    check(cudaGetLastError(), "launch");
  }
  void note_in_graph(unsigned stays) const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    note(stays);
    check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphLaunch(executable, stream_), "cudaGraphLaunch");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
  std::vector<unsigned long long> run(const Case& c, unsigned seed) const {
    const int occupants = 2 * multiprocessors_ * c.occupants / 4;
    if (occupants > 0) occupy<<<occupants, 1024, 0, beside_>>>(20 * kMs, seed);
    check(cudaGetLastError(), "launch");
    c.graph ? note_in_graph(c.stays) : note(c.stays);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::vector<unsigned long long> began(kCtas);
    check(cudaMemcpy(began.data(), began_, kCtas * sizeof(*began_), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return began;
  }

  int multiprocessors_ = 0;
  cudaStream_t beside_ = nullptr;
  cudaStream_t stream_ = nullptr;
  unsigned long long* began_ = nullptr;
};

}  // namespace

int main() {
  return status_of("cta_order", [] {
    const Bench bench;
    for (const bool graph : {false, true}) {
      bench.show({"alone", 0, 0, graph});
      bench.show({"alone, and all stay for 2 ms", 0, 2 * kMs, graph});
      bench.show({"beside others on half of the room", 2, 2 * kMs, graph});
      bench.show({"where others leave one by one", 4, 2 * kMs, graph});
      bench.show({"where twice as many others leave one by one", 8, 2 * kMs, graph});
    }
  });
}
