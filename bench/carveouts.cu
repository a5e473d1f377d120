// Whether a multiprocessor that has CTAs of one kernel takes those of another, by how each wants memory divided into
// cache and shared memory (cudaFuncAttributePreferredSharedMemoryCarveout). One CTA with little shared memory waits on
// every multiprocessor; then a kernel of one CTA is launched, for which there is room everywhere.
#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <thread>

#include "cuda_status.h"

namespace {

constexpr int kThreads = 288;
constexpr int kSharedBytes = 2496;

struct Shape {
  int threads;
  int shared_bytes;
};
constexpr std::array<Shape, 5> kShapes = {{{32, 0}, {32, 448}, {544, 4544}, {256, 0}, {128, 100 * 1024}}};
constexpr std::array<int, 5> kCarveouts = {cudaSharedmemCarveoutDefault, 0, 14, 50, cudaSharedmemCarveoutMaxShared};

__global__ void __launch_bounds__(kThreads, 2) wait_for(const volatile int* go) {
  while (*go == 0) {
  }
}
__global__ void do_nothing() {}

void set_carveout(const void* kernel, int carveout) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, carveout), "cudaFuncSetAttribute");
}

bool runs_beside(volatile int* go, int multiprocessors, const Shape& shape, cudaStream_t waiting, cudaStream_t other) {
  *go = 0;
  wait_for<<<multiprocessors, kThreads, kSharedBytes, waiting>>>(const_cast<int*>(go));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  do_nothing<<<1, shape.threads, shape.shared_bytes, other>>>();
  cudaError_t status = cudaErrorNotReady;
  for (int i = 0; i < 20 && status == cudaErrorNotReady; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    status = cudaStreamQuery(other);
  }
  *go = 1;
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  return status == cudaSuccess;
}

void run() {
  int multiprocessors = 0;
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  check(cudaFuncSetAttribute(do_nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024),
        "cudaFuncSetAttribute");
  void* go = nullptr;
  check(cudaHostAlloc(&go, sizeof(int), cudaHostAllocMapped), "cudaHostAlloc");
  std::array<cudaStream_t, 2> streams{};
  for (cudaStream_t& stream : streams)
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  std::printf("carveout of the one that waits, threads and bytes of the other: which of its carveouts run beside\n");
  for (const int waiting : kCarveouts) {
    set_carveout(reinterpret_cast<const void*>(&wait_for), waiting);
    for (const Shape& shape : kShapes) {
      std::printf("%4d %4d %7d:", waiting, shape.threads, shape.shared_bytes);
      for (const int other : kCarveouts) {
        set_carveout(reinterpret_cast<const void*>(&do_nothing), other);
        const bool runs = runs_beside(static_cast<int*>(go), multiprocessors, shape, streams[0], streams[1]);
        std::printf(runs ? " %4d" : "    -", other);
      }
      std::printf("\n");
    }
  }
}

}  // namespace

int main() { return status_of("carveouts", run); }
