// Ranks that capture collectives into graphs, and look at what launches of these give.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "communicator_ranks.h"
#include "device_memory.h"

namespace nitinol::gpu_testing {

/// Two ranks, whose inputs hold their number and one throughout.
class GraphRanks : public Ranks {
 protected:
  using Part = std::function<void(size_t rank)>;

  void SetUp() override {
    make(2);
    if (IsSkipped()) return;
    each([&](size_t rank) {
      const std::vector<int> mine(kBytes / sizeof(int), static_cast<int>(rank) + 1);
      CUDA_OK(copy_to_device(inputs[rank], mine.data(), kBytes));
    });
  }

  void capture(size_t rank, const Part& part, cudaGraph_t& graph) const {
    CUDA_OK(cudaStreamBeginCapture(streams[rank], cudaStreamCaptureModeThreadLocal));
    part(rank);
    CUDA_OK(cudaStreamEndCapture(streams[rank], &graph));
  }
  cudaGraph_t capture_sum(size_t rank, size_t count) const {
    cudaGraph_t graph = nullptr;
    const Part sum = [&](size_t) { all_reduce(rank, count); };
    capture(rank, sum, graph);
    return graph;
  }
  /// The rank's output is overwritten, and after the launch the first `count` elements are sums and the next is not.
  void expect_sums(size_t rank, cudaGraphExec_t graph, size_t count) const {
    launch_on_poison(rank, graph, count);
    expect_output(rank, count, 3);
  }
  static constexpr int kPoison = static_cast<int>(0xcdcdcdcd);
  void launch_on_poison(size_t rank, cudaGraphExec_t graph, size_t count) const {
    CUDA_OK(set_on_device(outputs[rank], 0xcd, (count + 1) * sizeof(int)));
    CUDA_OK(cudaGraphLaunch(graph, streams[rank]));
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
  }
  /// `count` elements of that value, and poison behind them.
  void expect_output(size_t rank, size_t count, int value) const {
    std::vector<int> got(count + 1);
    CUDA_OK(cudaMemcpy(got.data(), outputs[rank], (count + 1) * sizeof(int), cudaMemcpyDeviceToHost));
    std::vector<int> want(count, value);
    want.push_back(kPoison);
    EXPECT_EQ(got, want);
  }
  /// Each rank in turn does what makes CUDA wait for kernels.
  void in_turn(const Part& part) const {
    for (size_t rank = 0; rank < ranks(); ++rank) {
      CUDA_OK(cudaSetDevice(device(rank)));
      part(rank);
    }
  }
};

}  // namespace nitinol::gpu_testing
