// A communicator whose ranks are threads of the test, on GPUs of their own or sharing them.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "gpus.h"
#include "nccl.h"

namespace nitinol::gpu_testing {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A communicator of `ranks` ranks in this process, with a stream and two buffers each.
class Ranks : public testing::Test {
 protected:
  static constexpr size_t kBytes = size_t{32} << 20;

  void make(int ranks) {
    if (gpus() == 0) GTEST_SKIP() << "no GPU here";
    std::vector<int> devices(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) devices[static_cast<size_t>(rank)] = rank % gpus();
    comms.resize(static_cast<size_t>(ranks));
    for (const int device : devices) {
      cudaStream_t stream = nullptr;
      void* input = nullptr;
      void* output = nullptr;
      CUDA_OK(cudaSetDevice(device));
      CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      CUDA_OK(cudaMalloc(&input, kBytes));
      CUDA_OK(cudaMalloc(&output, kBytes));
      streams.push_back(stream);
      inputs.push_back(static_cast<int*>(input));
      outputs.push_back(static_cast<int*>(output));
    }
    const auto start = Clock::now();
    NCCL_OK(ncclCommInitAll(comms.data(), ranks, devices.data()));
    std::printf("communicator of %d ranks on %d GPUs: %.3f s\n", ranks, gpus(), seconds_since(start));
  }
  void TearDown() override {
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    for (size_t rank = 0; rank < streams.size(); ++rank) {
      EXPECT_EQ(cudaStreamDestroy(streams[rank]), cudaSuccess);
      EXPECT_EQ(cudaFree(inputs[rank]), cudaSuccess);
      EXPECT_EQ(cudaFree(outputs[rank]), cudaSuccess);
    }
    comms.clear();
    streams.clear();
    inputs.clear();
    outputs.clear();
  }
  size_t ranks() const { return comms.size(); }
  int device(size_t rank) const { return static_cast<int>(rank) % gpus(); }

  /// Runs each rank's part in a thread of its own.
  void each(const std::function<void(size_t)>& part) const {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        ASSERT_EQ(cudaSetDevice(device(rank)), cudaSuccess);
        part(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// The first error of the rank's communicator; ncclSuccess if none comes for long.
  ncclResult_t await_failure(size_t rank) const {
    const auto start = Clock::now();
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && seconds_since(start) < 20) {
      EXPECT_EQ(ncclCommGetAsyncError(comms[rank], &state), ncclSuccess);
    }
    return state;
  }

  void all_reduce(size_t rank, size_t count, ncclRedOp_t op = ncclSum) const {
    NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], count, ncclInt, op, comms[rank], streams[rank]));
  }
  /// Uploaded: those of ranks that share a GPU might come to share a hardware queue if threads launched them for the
  /// first time at the same moment.
  void instantiate(size_t rank, cudaGraph_t graph, cudaGraphExec_t& made) const {
    CUDA_OK(cudaGraphInstantiate(&made, graph, 0));
    CUDA_OK(cudaGraphUpload(made, streams[rank]));
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
  }
  /// Three all-reduces of the rank.
  void capture_three(size_t rank, size_t count, cudaGraph_t& graph) const {
    CUDA_OK(cudaStreamBeginCapture(streams[rank], cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 3; ++i) all_reduce(rank, count);
    CUDA_OK(cudaStreamEndCapture(streams[rank], &graph));
  }

  std::vector<ncclComm_t> comms;
  std::vector<cudaStream_t> streams;
  std::vector<int*> inputs;
  std::vector<int*> outputs;
};

}  // namespace nitinol::gpu_testing
