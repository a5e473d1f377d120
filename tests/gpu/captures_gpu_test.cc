// Thousands of graphs come and go, and hundreds are alive, without growth.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "communicator_ranks.h"

namespace {

using namespace nitinol::gpu_testing;

size_t entries_of(const char* folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

/// What the process holds.
struct Held {
  size_t device_bytes = 0;
  size_t host_bytes = 0;
  size_t descriptors = entries_of("/proc/self/fd");
  size_t threads = entries_of("/proc/self/task");

  Held() { look(); }

 private:
  void look() {
    size_t all = 0;
    size_t unused = 0;
    CUDA_OK(cudaMemGetInfo(&unused, &all));
    device_bytes = all - unused;
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    host_bytes = pages * 4096;
  }
};

class Captures : public Ranks {
 protected:
  /// A graph with a collective, a group of collectives, messages, and of a size that changes from graph to graph.
  void capture(size_t rank, size_t number, cudaGraphExec_t& made) const {
    const ncclComm_t comm = comms[rank];
    const cudaStream_t stream = streams[rank];
    const size_t count = 100 + number % 500;
    const auto other = static_cast<int>((rank + 1) % ranks());
    cudaGraph_t graph = nullptr;
    CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], count, ncclInt, ncclSum, comm, stream));
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclBroadcast(inputs[rank], outputs[rank], count, ncclInt, 0, comm, stream));
    NCCL_OK(ncclAllGather(inputs[rank], outputs[rank], count, ncclInt, comm, stream));
    NCCL_OK(ncclSend(inputs[rank], count, ncclInt, other, comm, stream));
    NCCL_OK(ncclRecv(outputs[rank], count, ncclInt, other, comm, stream));
    NCCL_OK(ncclGroupEnd());
    CUDA_OK(cudaStreamEndCapture(stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&made, graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
    CUDA_OK(cudaGraphUpload(made, stream));
  }
  /// So many graphs of each rank, of which the last ones stay alive, each launched once, with calls between. Nobody
  /// captures while others' kernels run: where ranks share a GPU CUDA may wait for these with a lock that others need.
  void run(size_t first, size_t graphs) {
    constexpr size_t kTogether = 20;
    constexpr size_t kAlive = 200;
    std::vector<std::deque<cudaGraphExec_t>> alive(ranks());
    for (size_t begin = first; begin < first + graphs; begin += kTogether) {
      each([&](size_t rank) {
        for (size_t i = 0; i < kTogether; ++i) capture(rank, begin + i, alive[rank].emplace_back());
        CUDA_OK(cudaStreamSynchronize(streams[rank]));
      });
      each([&](size_t rank) {
        for (size_t i = 0; i < kTogether; ++i) {
          CUDA_OK(cudaGraphLaunch(*(alive[rank].end() - static_cast<std::ptrdiff_t>(kTogether - i)), streams[rank]));
          NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], 7, ncclInt, ncclSum, comms[rank], streams[rank]));
        }
        CUDA_OK(cudaStreamSynchronize(streams[rank]));
      });
      each([&](size_t rank) {
        for (; alive[rank].size() > kAlive; alive[rank].pop_front()) {
          CUDA_OK(cudaGraphExecDestroy(alive[rank].front()));
        }
      });
    }
    each([&](size_t rank) {
      for (const cudaGraphExec_t graph : alive[rank]) CUDA_OK(cudaGraphExecDestroy(graph));
    });
  }
};

TEST_F(Captures, OfThousandsLeaveNothingBehind) {
  make(2);
  if (IsSkipped()) return;
  constexpr size_t kGraphs = 2000;
  const auto start = Clock::now();
  run(0, kGraphs);
  std::printf("%zu graphs of each rank: %.1f s\n", kGraphs, seconds_since(start));
  const Held before;
  run(kGraphs, 2 * kGraphs);
  const Held after;
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
  // What allocators keep for themselves; a graph is some ten kilobytes on either side.
  constexpr size_t kSlack = size_t{4} << 20;
  EXPECT_LE(after.device_bytes, before.device_bytes + kSlack);
  EXPECT_LE(after.host_bytes, before.host_bytes + kSlack);
  std::printf("host %zu and then %zu KiB, device %zu and then %zu KiB\n", before.host_bytes >> 10,
              after.host_bytes >> 10, before.device_bytes >> 10, after.device_bytes >> 10);
  for (const ncclComm_t comm : comms) {
    ncclResult_t state = ncclInternalError;
    NCCL_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comm);
  }
}

}  // namespace
