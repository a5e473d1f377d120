// How fast GPUs store into pinned host memory and load from it, in one direction and in both at the same time, by the
// way in which the memory was made: what operations without peer access are limited by. Each CTA goes through slots of
// its own again and again, as kernels do; a row is a kind of memory, a number of CTAs and a size of slots. With several
// GPUs all of them do the same at the same time, each with memory of its own, and the slowest counts.
// Usage: host_memory
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_status.h"

namespace {

constexpr size_t kRegion = size_t{64} << 20;
constexpr size_t kBytes = size_t{96} << 20;  ///< that each direction moves
constexpr int kThreads = 512;
constexpr int kInFlight = 8;  ///< accesses of 16 bytes by a thread
constexpr int kRepeats = 3;

enum class Kind { kRegistered, kAllocated, kDriver };
constexpr const char* kKindNames[] = {"memfd, registered", "cudaHostAlloc", "cuMemCreate"};

struct Moves {
  char* host;
  char* device;
  size_t slot;
  int slots;     ///< of each CTA
  int writers;   ///< CTAs that store; the others load
  size_t bytes;  ///< of each CTA
};

__global__ void __launch_bounds__(kThreads) move_all(const __grid_constant__ Moves moves) {
  const bool writes = static_cast<int>(blockIdx.x) < moves.writers;
  char* const mine = moves.host + static_cast<size_t>(blockIdx.x) * moves.slot * static_cast<size_t>(moves.slots);
  char* const own = moves.device + static_cast<size_t>(blockIdx.x) * moves.slot;
  const auto turns = static_cast<int>(moves.bytes / moves.slot);
  for (int turn = 0; turn < turns; ++turn) {
    char* const slot = mine + static_cast<size_t>(turn % moves.slots) * moves.slot;
    const auto* from = reinterpret_cast<const uint4*>(writes ? own : slot);
    auto* to = reinterpret_cast<uint4*>(writes ? slot : own);
    for (size_t first = threadIdx.x; first < moves.slot / 16; first += size_t{kThreads} * kInFlight) {
      uint4 units[kInFlight];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const size_t at = first + size_t{kThreads} * u;
        if (at < moves.slot / 16) {
          asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                       : "=r"(units[u].x), "=r"(units[u].y), "=r"(units[u].z), "=r"(units[u].w)
                       : "l"(from + at)
                       : "memory");
        }
      }
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const size_t at = first + size_t{kThreads} * u;
        if (at < moves.slot / 16) to[at] = units[u];
      }
    }
    __syncthreads();
  }
}

/// A word goes to the host's memory and is read there until it has come, back and forth between two CTAs.
__global__ void ping_pong(volatile uint32_t* host, int turns) {
  volatile uint32_t* const mine = host + blockIdx.x * 256;
  volatile uint32_t* const other = host + (1 - blockIdx.x) * 256;
  for (int turn = 1; turn <= turns; ++turn) {
    if (blockIdx.x == 0) *other = static_cast<uint32_t>(turn);
    for (int looks = 0; *mine != static_cast<uint32_t>(turn) && looks < (1 << 20); ++looks) {
    }
    if (blockIdx.x == 1) *other = static_cast<uint32_t>(turn);
  }
}

template <class Function>
Function* driver_function(const char* name, unsigned version) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found), name);
  if (address == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
  return reinterpret_cast<Function*>(address);
}

void driver_check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + ": " + std::to_string(result));
}

/// As the driver makes it for processes that share it.
char* make_by_driver(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  int node = 0;
  if (cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device) != cudaSuccess || node < 0) node = 0;
  properties.location.id = node;
  CUmemGenericAllocationHandle handle = 0;
  driver_check(driver_function<decltype(cuMemCreate)>("cuMemCreate", 12020)(&handle, kRegion, &properties, 0),
               "cuMemCreate");
  CUdeviceptr address = 0;
  driver_check(driver_function<decltype(cuMemAddressReserve)>("cuMemAddressReserve", 12020)(&address, kRegion, 0, 0, 0),
               "cuMemAddressReserve");
  driver_check(driver_function<decltype(cuMemMap)>("cuMemMap", 12020)(address, kRegion, 0, handle, 0), "cuMemMap");
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  driver_check(driver_function<decltype(cuMemSetAccess)>("cuMemSetAccess", 12020)(address, kRegion, &access, 1),
               "cuMemSetAccess");
  return reinterpret_cast<char*>(address);
}

char* make(Kind kind, int device) {
  void* memory = nullptr;
  switch (kind) {
    case Kind::kRegistered: {
      const int fd = ::memfd_create("host_memory", 0);
      if (fd < 0 || ::ftruncate(fd, kRegion) != 0) throw std::runtime_error("memfd_create");
      memory = ::mmap(nullptr, kRegion, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      check(cudaHostRegister(memory, kRegion, cudaHostRegisterPortable | cudaHostRegisterMapped), "cudaHostRegister");
      break;
    }
    case Kind::kAllocated:
      check(cudaHostAlloc(&memory, kRegion, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
      break;
    case Kind::kDriver: memory = make_by_driver(device); break;
  }
  check(cudaMemset(memory, 0, kRegion), "cudaMemset");
  return static_cast<char*>(memory);
}

struct Gpu {
  int device;
  char* host;
  char* own;
  cudaStream_t stream, second;
  cudaEvent_t start, stop;
};

/// The time of the slowest GPU, in milliseconds; the least of some tries.
template <class Launch>
float time_of(const std::vector<Gpu>& gpus, Launch launch) {
  float best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    for (const Gpu& gpu : gpus) {
      check(cudaSetDevice(gpu.device), "cudaSetDevice");
      check(cudaEventRecord(gpu.start, gpu.stream), "cudaEventRecord");
      launch(gpu);
      check(cudaEventRecord(gpu.stop, gpu.stream), "cudaEventRecord");
    }
    float slowest = 0;
    for (const Gpu& gpu : gpus) {
      check(cudaEventSynchronize(gpu.stop), "cudaEventSynchronize");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, gpu.start, gpu.stop), "cudaEventElapsedTime");
      slowest = std::max(slowest, ms);
    }
    best = repeat == 0 ? slowest : std::min(best, slowest);
  }
  return best;
}

double gigabytes(size_t bytes, float ms) { return static_cast<double>(bytes) / ms * 1e-6; }

void measure_kernels(const std::vector<Gpu>& gpus, int ctas, size_t slot) {
  const size_t each = kBytes / static_cast<size_t>(ctas) / slot * slot;
  const auto time_with = [&](int writers, int readers) {
    return time_of(gpus, [&](const Gpu& gpu) {
      move_all<<<writers + readers, kThreads, 0, gpu.stream>>>(Moves{gpu.host, gpu.own, slot, 4, writers, each});
      check(cudaGetLastError(), "launch");
    });
  };
  const size_t bytes = each * static_cast<size_t>(ctas);
  std::printf("  %2d CTAs, slots of %3zu KB: stores %5.1f, loads %5.1f, both at once %5.1f GB/s each\n", ctas,
              slot >> 10, gigabytes(bytes, time_with(ctas, 0)), gigabytes(bytes, time_with(0, ctas)),
              gigabytes(bytes, time_with(ctas, ctas)));
}

void measure_copies(const std::vector<Gpu>& gpus) {
  const size_t half = kRegion / 2;
  const auto copy = [&](const Gpu& gpu, bool out, cudaStream_t stream) {
    char* const host = gpu.host + (out ? 0 : half);
    char* const own = gpu.own + (out ? 0 : half);
    check(cudaMemcpyAsync(out ? host : own, out ? own : host, half, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  };
  const float out = time_of(gpus, [&](const Gpu& gpu) { copy(gpu, true, gpu.stream); });
  const float in = time_of(gpus, [&](const Gpu& gpu) { copy(gpu, false, gpu.stream); });
  cudaEvent_t joined = nullptr;
  const float both = time_of(gpus, [&](const Gpu& gpu) {
    check(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming), "cudaEventCreate");
    check(cudaStreamWaitEvent(gpu.second, gpu.start, 0), "cudaStreamWaitEvent");
    copy(gpu, true, gpu.stream);
    copy(gpu, false, gpu.second);
    check(cudaEventRecord(joined, gpu.second), "cudaEventRecord");
    check(cudaStreamWaitEvent(gpu.stream, joined, 0), "cudaStreamWaitEvent");
  });
  std::printf("  copy engines: to the host %5.1f, from it %5.1f, both at once %5.1f GB/s each\n", gigabytes(half, out),
              gigabytes(half, in), gigabytes(half, both));
}

void measure_latency(const Gpu& gpu) {
  constexpr int kTurns = 2000;
  const float ms = time_of({gpu}, [&](const Gpu& one) {
    check(cudaMemsetAsync(one.host, 0, 4096, one.stream), "cudaMemsetAsync");
    ping_pong<<<2, 1, 0, one.stream>>>(reinterpret_cast<volatile uint32_t*>(one.host), kTurns);
    check(cudaGetLastError(), "launch");
  });
  std::printf("  a word from one CTA to another through it: %.2f us\n", ms * 1e3 / kTurns / 2);
}

void measure(Kind kind, int devices) {
  std::vector<Gpu> gpus;
  for (int device = 0; device < devices; ++device) {
    check(cudaSetDevice(device), "cudaSetDevice");
    Gpu gpu{};
    gpu.device = device;
    gpu.host = make(kind, device);
    void* own = nullptr;
    check(cudaMalloc(&own, kRegion), "cudaMalloc");
    gpu.own = static_cast<char*>(own);
    check(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaStreamCreateWithFlags(&gpu.second, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&gpu.start), "cudaEventCreate");
    check(cudaEventCreate(&gpu.stop), "cudaEventCreate");
    gpus.push_back(gpu);
  }
  for (size_t used = 1; used <= gpus.size(); used += gpus.size() - 1) {
    const std::vector<Gpu> some(gpus.begin(), gpus.begin() + static_cast<long>(used));
    std::printf("%s, %zu GPU%s\n", kKindNames[static_cast<int>(kind)], used, used == 1 ? "" : "s");
    measure_copies(some);
    for (const int ctas : {4, 8, 16, 32}) {
      for (const size_t slot : {size_t{16} << 10, size_t{128} << 10}) measure_kernels(some, ctas, slot);
    }
    if (used == 1) measure_latency(some[0]);
    if (gpus.size() == 1) break;
  }
}

void run() {
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  for (const Kind kind : {Kind::kRegistered, Kind::kAllocated, Kind::kDriver}) {
    try {
      measure(kind, devices);
    } catch (const std::exception& error) {
      std::printf("%s: %s\n", kKindNames[static_cast<int>(kind)], error.what());
    }
  }
}

}  // namespace

int main() { return status_of("host_memory", run); }
