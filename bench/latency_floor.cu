// How short an all-reduce of a few kilobytes can be: chains of kernels of one CTA in a graph, from an empty one to a
// complete exchange in which each rank stores {data, flag} into all others' memory. The ranks are branches of the
// graph, on as many GPUs as there are, in turns. Usage: latency_floor [RANKS] [BYTES]
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda_status.h"
#include "executor/cuda/ptx.h"

namespace {

using nitinol::cuda::await_earlier_kernels;
using nitinol::cuda::let_next_kernel_begin;
using nitinol::cuda::load_live;
using nitinol::cuda::store_live;

constexpr int kMostRanks = 8;
constexpr int kChain = 200;
constexpr int kInboxBytes = 64 << 10;  // of one sender and parity

struct Parameters {
  char* inbox[kMostRanks];  ///< of every rank: [parity][sender]
  uint32_t* epoch;          ///< of this rank
  const float2* input;
  float2* output;
  const volatile uint32_t* aborted;
  int rank;
  int ranks;
  int units;        ///< of 8 bytes
  bool overlaps;    ///< the next kernel may begin early
  char rest[1200];  ///< as long as what the library hands over
};

enum class Step { kEmpty, kEpoch, kInput, kExchange };

template <Step step>
__global__ void __launch_bounds__(1024) exchange(const __grid_constant__ Parameters p) {
  await_earlier_kernels();
  if (p.overlaps) let_next_kernel_begin();
  if constexpr (step == Step::kEmpty) return;
  const int unit = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const bool works = unit < p.units;
  const uint32_t epoch = *reinterpret_cast<volatile uint32_t*>(p.epoch + 32 * blockIdx.x) + 1;
  __syncthreads();  // before the first thread writes it
  float2 mine{};
  if (step != Step::kEpoch && works) mine = p.input[unit];
  if constexpr (step == Step::kExchange) {
    if (works) {
      const size_t at = (static_cast<size_t>(epoch & 1) * kMostRanks + p.rank) * kInboxBytes + unit * 16;
      const uint4 line = make_uint4(__float_as_uint(mine.x), epoch, __float_as_uint(mine.y), epoch);
      for (int i = 1; i < p.ranks; ++i) {
        const int peer = p.rank + i < p.ranks ? p.rank + i : p.rank + i - p.ranks;
        store_live(p.inbox[peer] + at, line);
      }
      float2 sum{0, 0};
      const char* own = p.inbox[p.rank] + static_cast<size_t>(epoch & 1) * kMostRanks * kInboxBytes + unit * 16;
      for (int r = 0; r < p.ranks; ++r) {
        uint4 got = make_uint4(__float_as_uint(mine.x), epoch, __float_as_uint(mine.y), epoch);
        if (r != p.rank) {
          int turns = 0;
          do {
            got = load_live(own + static_cast<size_t>(r) * kInboxBytes);
            if (++turns % 65536 == 0 && *p.aborted != 0) break;
          } while (got.y != epoch || got.w != epoch);
        }
        sum.x += __uint_as_float(got.x);
        sum.y += __uint_as_float(got.z);
      }
      p.output[unit] = sum;
    }
  } else if (works) {
    p.output[unit] = mine;
  }
  if (threadIdx.x == 0) *(p.epoch + 32 * blockIdx.x) = epoch;
}

struct Rank {
  int device = 0;
  cudaStream_t stream = nullptr;
  Parameters parameters{};
};

void launch(const void* kernel, const Rank& rank, int ctas, int threads, bool overlaps) {
  Parameters p = rank.parameters;
  p.overlaps = overlaps;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = rank.stream;
  config.attrs = &attribute;
  config.numAttrs = overlaps ? 1 : 0;
  void* arguments[] = {&p};
  check(cudaLaunchKernelExC(&config, kernel, arguments), "cudaLaunchKernelExC");
}

double time_chain(const void* kernel, std::vector<Rank>& ranks, int ctas, int threads, bool overlaps) {
  std::vector<cudaGraphExec_t> execs;
  for (Rank& rank : ranks) {
    check(cudaSetDevice(rank.device), "cudaSetDevice");
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal), "begin");
    for (int i = 0; i < kChain; ++i) launch(kernel, rank, ctas, threads, overlaps);
    check(cudaStreamEndCapture(rank.stream, &graph), "end");
    cudaGraphExec_t exec = nullptr;
    check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    check(cudaGraphUpload(exec, rank.stream), "upload");
    execs.push_back(exec);
    check(cudaGraphDestroy(graph), "destroy");
  }
  std::vector<double> times;
  for (int run = 0; run < 15; ++run) {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    check(cudaSetDevice(ranks[0].device), "cudaSetDevice");
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    for (size_t r = ranks.size(); r-- > 0;) {
      check(cudaSetDevice(ranks[r].device), "cudaSetDevice");
      if (r == 0) check(cudaEventRecord(begin, ranks[0].stream), "record");
      check(cudaGraphLaunch(execs[r], ranks[r].stream), "launch");
    }
    check(cudaEventRecord(end, ranks[0].stream), "record");
    for (Rank& rank : ranks) check(cudaStreamSynchronize(rank.stream), "synchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    times.push_back(ms * 1000.0 / kChain);
  }
  for (cudaGraphExec_t exec : execs) check(cudaGraphExecDestroy(exec), "destroy");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void run(int n, int bytes) {
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  std::vector<Rank> ranks(static_cast<size_t>(n));
  char* inboxes[kMostRanks] = {};
  uint32_t* aborted = nullptr;
  check(cudaHostAlloc(&aborted, 4, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
  *aborted = 0;
  for (int r = 0; r < n; ++r) {
    Rank& rank = ranks[static_cast<size_t>(r)];
    rank.device = r % devices;
    check(cudaSetDevice(rank.device), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), "stream");
    for (int d = 0; d < devices; ++d) {
      if (d != rank.device) static_cast<void>(cudaDeviceEnablePeerAccess(d, 0));
    }
    static_cast<void>(cudaGetLastError());
    check(cudaMalloc(&inboxes[r], size_t{2} * kMostRanks * kInboxBytes), "malloc");
    check(cudaMemset(inboxes[r], 0, size_t{2} * kMostRanks * kInboxBytes), "memset");
    void* memory = nullptr;
    check(cudaMalloc(&memory, 4096), "malloc");
    check(cudaMemset(memory, 0, 4096), "memset");
    rank.parameters.epoch = static_cast<uint32_t*>(memory);
    check(cudaMalloc(&memory, 1 << 20), "malloc");
    check(cudaMemset(memory, 0, 1 << 20), "memset");
    rank.parameters.input = static_cast<const float2*>(memory);
    check(cudaMalloc(&memory, 1 << 20), "malloc");
    rank.parameters.output = static_cast<float2*>(memory);
    rank.parameters.rank = r;
    rank.parameters.ranks = n;
    rank.parameters.units = bytes / 8;
    rank.parameters.aborted = aborted;
    check(cudaDeviceSynchronize(), "synchronize");
  }
  for (Rank& rank : ranks) std::memcpy(rank.parameters.inbox, inboxes, sizeof inboxes);
  std::printf("%d ranks on %d GPUs, %d bytes, chains of %d kernels in graphs, us a kernel (median of 15)\n", n, devices,
              bytes, kChain);
  std::printf("%-34s %8s %8s %8s %8s\n", "", "1 CTA", "overlap", "CTAs", "overlap");
  const auto row = [&](const char* name, const void* kernel) {
    const int units = bytes / 8;
    const int one = std::min(1024, (units + 31) / 32 * 32);
    const int ctas = std::max(1, units / 128);
    std::printf("%-34s", name);
    for (const bool spread : {false, true}) {
      for (const bool overlaps : {false, true}) {
        const int threads = spread ? std::min(128, one) : one;
        const int count = spread ? ctas : (units + one - 1) / one;
        std::printf(" %8.2f", time_chain(kernel, ranks, count, threads, overlaps));
        std::fflush(stdout);
      }
    }
    std::printf("\n");
  };
  row("empty", reinterpret_cast<const void*>(&exchange<Step::kEmpty>));
  row("reads and writes an epoch", reinterpret_cast<const void*>(&exchange<Step::kEpoch>));
  row("and copies its input", reinterpret_cast<const void*>(&exchange<Step::kInput>));
  row("and exchanges it with all", reinterpret_cast<const void*>(&exchange<Step::kExchange>));
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const int bytes = argc > 2 ? std::atoi(argv[2]) : 1024;
  return status_of("latency_floor", [&] { run(std::clamp(ranks, 1, kMostRanks), std::clamp(bytes, 256, 65536)); });
}
