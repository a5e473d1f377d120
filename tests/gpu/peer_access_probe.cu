#include <atomic>

#include "executor/cuda/parameters.h"
#include "executor/cuda/probe.h"
#include "peer_access_probe.h"

namespace {

std::atomic<bool> any_broken{false};
__device__ int broken_rank;

__global__ void broken_probe(const __grid_constant__ nitinol::cuda::QueueView queue, uint32_t* answers) {
  __shared__ bool broken;
  if (threadIdx.x == 0) broken = atomicCAS(&broken_rank, queue.rank, -1) == queue.rank;
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < queue.layout.ranks) answers[peer] = broken && peer != queue.rank ? 0 : 1;
}

}  // namespace

void break_probe_of(int rank) {
  any_broken = rank >= 0;
  int current = 0;
  int devices = 0;
  static_cast<void>(cudaGetDevice(&current));
  static_cast<void>(cudaGetDeviceCount(&devices));
  for (int device = 0; device < devices; ++device) {  // each has a variable of its own
    static_cast<void>(cudaSetDevice(device));
    static_cast<void>(cudaMemcpyToSymbol(broken_rank, &rank, sizeof(rank)));
  }
  static_cast<void>(cudaSetDevice(current));
}

// nitinol::cuda::probe_kernel(), as the linker is told to (--wrap).
extern "C" const void* __real__ZN7nitinol4cuda12probe_kernelEv();
extern "C" const void* __wrap__ZN7nitinol4cuda12probe_kernelEv() {
  return any_broken ? reinterpret_cast<const void*>(&broken_probe) : __real__ZN7nitinol4cuda12probe_kernelEv();
}
