// Bodies of conditional nodes, which must hold no event nodes, with collectives: torch.cond and XLA's loops make such.
// Programs set NCCL_GRAPH_MIXING_SUPPORT=0 for them, with NCCL too.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "graph_ranks.h"

namespace {

using namespace nitinol::gpu_testing;

/// Before anything asks for it.
const int kSet = setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);

/// The body runs so many times.
__global__ void count_down(cudaGraphConditionalHandle handle, int* left) {
  *left -= 1;
  cudaGraphSetConditional(handle, *left > 0 ? 1 : 0);
}

/// A graph with a conditional node.
struct Conditional {
  void make(cudaGraphConditionalNodeType type, unsigned first) {
    CUDA_OK(cudaGraphCreate(&graph, 0));
    CUDA_OK(cudaGraphConditionalHandleCreate(&handle, graph, first, cudaGraphCondAssignDefault));
    cudaGraphNodeParams params{};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = 1;
    cudaGraphNode_t node = nullptr;
    CUDA_OK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
    body = params.conditional.phGraph_out[0];
  }

  cudaGraph_t graph = nullptr;
  cudaGraph_t body = nullptr;
  cudaGraphConditionalHandle handle{};
};

class GraphBodies : public GraphRanks {
 protected:
  void TearDown() override {
    each([&](size_t rank) {
      for (const cudaGraphExec_t graph : graphs_[rank]) CUDA_OK(cudaGraphExecDestroy(graph));
    });
    GraphRanks::TearDown();
  }
  void capture_to(cudaGraph_t body, size_t rank, const Part& part) const {
    CUDA_OK(cudaStreamBeginCaptureToGraph(streams[rank], body, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
    part(rank);
    CUDA_OK(cudaStreamEndCapture(streams[rank], &body));
  }
  void finish(size_t rank, const Conditional& conditional) {
    instantiate(rank, conditional.graph, graphs_[rank].emplace_back());
    CUDA_OK(cudaGraphDestroy(conditional.graph));
  }
  /// In turns with calls that are not captured.
  void expect_output_of_launches(size_t count, int value) const {
    for (int round = 0; round < 3; ++round) {
      each([&](size_t rank) {
        launch_on_poison(rank, graphs_[rank].back(), count);
        expect_output(rank, count, value);
        all_reduce(rank, 1000);
      });
    }
  }

  std::vector<std::vector<cudaGraphExec_t>> graphs_{2};
};

TEST_F(GraphBodies, RunWhereTheConditionHolds) {
  for (const unsigned condition : {1U, 0U}) {
    in_turn([&](size_t rank) {
      Conditional conditional;
      conditional.make(cudaGraphCondTypeIf, condition);
      capture_to(conditional.body, rank, [&](size_t) {
        all_reduce(rank, 100);
        all_reduce(rank, 50'000);
      });
      finish(rank, conditional);
    });
    expect_output_of_launches(50'000, condition != 0 ? 3 : kPoison);
  }
}

TEST_F(GraphBodies, RunAgainAndAgain) {
  constexpr int kTimes = 10;
  for (const size_t count : {size_t{70}, size_t{40'000}, size_t{3'000'000}}) {
    std::vector<int*> left(ranks());
    in_turn([&](size_t rank) {
      CUDA_OK(cudaMalloc(&left[rank], sizeof(int)));
      Conditional loop;
      loop.make(cudaGraphCondTypeWhile, 1);
      capture_to(loop.body, rank, [&](size_t) {
        NCCL_OK(ncclAllReduce(outputs[rank], outputs[rank], count, ncclInt, ncclSum, comms[rank], streams[rank]));
        count_down<<<1, 1, 0, streams[rank]>>>(loop.handle, left[rank]);
      });
      finish(rank, loop);
    });
    for (int round = 0; round < 3; ++round) {
      each([&](size_t rank) {
        CUDA_OK(nitinol::copy_to_device(left[rank], &kTimes, sizeof kTimes));
        CUDA_OK(nitinol::set_on_device(outputs[rank], 0xcd, (count + 1) * sizeof(int)));
        CUDA_OK(nitinol::copy_to_device(outputs[rank], std::vector<int>(count, static_cast<int>(rank) + 1).data(),
                                        count * sizeof(int)));
        CUDA_OK(cudaGraphLaunch(graphs_[rank].back(), streams[rank]));
        CUDA_OK(cudaStreamSynchronize(streams[rank]));
        expect_output(rank, count, 3 << (kTimes - 1));
      });
    }
    in_turn([&](size_t rank) { CUDA_OK(cudaFree(left[rank])); });
  }
}

/// As XLA puts them there.
TEST_F(GraphBodies, HoldCapturesAsGraphsOfTheirOwn) {
  in_turn([&](size_t rank) {
    Conditional conditional;
    conditional.make(cudaGraphCondTypeIf, 1);
    cudaGraph_t part = capture_sum(rank, 20'000);
    cudaGraphNode_t node = nullptr;
    CUDA_OK(cudaGraphAddChildGraphNode(&node, conditional.body, nullptr, 0, part));
    CUDA_OK(cudaGraphDestroy(part));
    finish(rank, conditional);
  });
  expect_output_of_launches(20'000, 3);
}

}  // namespace
