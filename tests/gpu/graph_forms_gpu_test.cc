// What programs make of the graphs into which collectives were captured: they update instances from later captures, put
// captures into other graphs, and copy them. XLA does the first two for every step.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "graph_ranks.h"

namespace {

using namespace nitinol::gpu_testing;

class GraphForms : public GraphRanks {
 protected:
  /// By LL, LL128 and Simple, with few CTAs and many: what is captured differs, its form must not.
  static std::vector<size_t> counts() { return {100, 50000, 5'000'000, 3, 1'000'000}; }
};

TEST_F(GraphForms, InstancesAreUpdatedFromLaterCaptures) {
  std::vector<cudaGraphExec_t> graphs(ranks());
  for (size_t round = 0; round < 3; ++round) {
    for (const size_t count : counts()) {
      in_turn([&](size_t rank) {
        cudaGraph_t graph = capture_sum(rank, count);
        if (graphs[rank] == nullptr) {
          instantiate(rank, graph, graphs[rank]);
        } else {
          cudaGraphExecUpdateResultInfo info{};
          EXPECT_EQ(cudaGraphExecUpdate(graphs[rank], graph, &info), cudaSuccess)
              << "count " << count << " result " << info.result;
        }
        CUDA_OK(cudaGraphDestroy(graph));
      });
      each([&](size_t rank) {
        expect_sums(rank, graphs[rank], count);
        all_reduce(rank, 1000);  // between launches
      });
    }
  }
  each([&](size_t rank) { CUDA_OK(cudaGraphExecDestroy(graphs[rank])); });
}

TEST_F(GraphForms, CapturesStandInOtherGraphsAndAreReplacedThere) {
  std::vector<cudaGraphExec_t> graphs(ranks());
  std::vector<cudaGraphNode_t> second(ranks());
  in_turn([&](size_t rank) {
    cudaGraph_t whole = nullptr;
    CUDA_OK(cudaGraphCreate(&whole, 0));
    cudaGraphNode_t first = nullptr;
    cudaGraph_t part = capture_sum(rank, 1000);
    CUDA_OK(cudaGraphAddChildGraphNode(&first, whole, nullptr, 0, part));
    CUDA_OK(cudaGraphDestroy(part));
    part = capture_sum(rank, 20'000);
    CUDA_OK(cudaGraphAddChildGraphNode(&second[rank], whole, &first, 1, part));
    CUDA_OK(cudaGraphDestroy(part));
    instantiate(rank, whole, graphs[rank]);  // `whole` stays: its nodes name those of the instance
  });
  each([&](size_t rank) { expect_sums(rank, graphs[rank], 20'000); });
  for (const size_t count : counts()) {
    if (count < 1000) continue;  // else the first one's sums stand behind them
    in_turn([&](size_t rank) {
      cudaGraph_t part = capture_sum(rank, count);
      EXPECT_EQ(cudaGraphExecChildGraphNodeSetParams(graphs[rank], second[rank], part), cudaSuccess) << count;
      CUDA_OK(cudaGraphDestroy(part));
    });
    each([&](size_t rank) {
      expect_sums(rank, graphs[rank], count);
      all_reduce(rank, 1000);
      expect_sums(rank, graphs[rank], count);
    });
  }
  each([&](size_t rank) { CUDA_OK(cudaGraphExecDestroy(graphs[rank])); });
}

TEST_F(GraphForms, CopiesOutliveTheGraphAndTheCommunicator) {
  std::vector<cudaGraphExec_t> graphs(ranks());
  in_turn([&](size_t rank) {
    cudaGraph_t graph = capture_sum(rank, 50'000);
    cudaGraph_t copy = nullptr;
    CUDA_OK(cudaGraphClone(&copy, graph));
    CUDA_OK(cudaGraphDestroy(graph));
    instantiate(rank, copy, graphs[rank]);
    CUDA_OK(cudaGraphDestroy(copy));
  });
  each([&](size_t rank) {
    expect_sums(rank, graphs[rank], 50'000);
    NCCL_OK(ncclCommDestroy(comms[rank]));
  });
  each([&](size_t rank) { expect_sums(rank, graphs[rank], 50'000); });
  each([&](size_t rank) { CUDA_OK(cudaGraphExecDestroy(graphs[rank])); });
  comms.clear();
}

}  // namespace
