// Collectives with the protocol for large messages: the same bits as with the others, at slot and chunk edges, at any
// alignment, in place, through host memory, eagerly and from graphs; abort ends what waits. Ranks share a GPU if there
// are fewer.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cluster.h"

namespace nitinol::gpu_testing {

namespace {

// Kernels of several ranks on one GPU must not stand in line behind each other.
[[maybe_unused]] const int kConnections = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

#define REQUIRE_GPU() \
  if (gpus() == 0) GTEST_SKIP() << "no GPU here"

template <class Visit>
void for_each_bulk_algorithm(const Limits& limits, Visit&& visit) {
  for_each_algorithm(limits, [&](CollectiveWork work) {
    if (work.plan.protocol != Protocol::kBulk) return;
    work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
    work.plan.channels = 5;
    visit(work);
  });
}

class Bulk : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Bulk, testing::Values(2, 3, 4), testing::PrintToStringParamName());

TEST_P(Bulk, EveryCollectiveGivesTheExpectedBitsAtEverySize) {
  REQUIRE_GPU();
  Cluster cluster(ranks());
  for_each_bulk_algorithm(cluster.ranks().limits(), [&](CollectiveWork work) {
    int turn = 0;
    // In chunks of 1024 elements: less than one, several, more rounds than there are slots, with and without a rest.
    for (const size_t count : {1UL, 17UL, 1023UL, 1024UL, 1025UL, 4099UL, 4096UL * 3, 40000UL, 300001UL}) {
      if (testing::Test::HasFatalFailure()) return;
      Case test{.work = work};
      test.work.count = count;
      test.work.root = turn % ranks();
      test.work.plan.chunk = 1024;
      test.misaligned = turn++ % 3;
      ASSERT_EQ(cluster.run(test), "") << describe(test, ranks());
    }
  });
}

TEST_P(Bulk, ChunksAreAsLongAsSlots) {
  REQUIRE_GPU();
  Cluster cluster(ranks());
  const Limits limits = cluster.ranks().limits();
  for_each_bulk_algorithm(limits, [&](CollectiveWork work) {
    if (testing::Test::HasFatalFailure()) return;
    const size_t slot = limits.slot_bytes[static_cast<size_t>(Protocol::kBulk)] / bytes_of(work.type);
    const bool blocks = input_blocks(work.what, 2, true) > 1 || output_blocks(work.what, 2, true) > 1;
    for (const size_t count : {slot, slot * 2 + 5}) {
      Case test{.work = work};
      test.work.count = blocks ? count : count * 2;
      test.work.plan.channels = 32;
      ASSERT_EQ(cluster.run(test), "") << describe(test, ranks());
    }
  });
}

TEST_P(Bulk, TypesAveragesAndBuffersInPlace) {
  REQUIRE_GPU();
  Cluster cluster(ranks());
  for_each_bulk_algorithm(cluster.ranks().limits(), [&](CollectiveWork work) {
    for (const DataType type : {DataType::kBfloat16, DataType::kInt8, DataType::kInt32}) {
      for (const size_t count : {7UL, 2048UL, 100001UL}) {
        if (testing::Test::HasFatalFailure()) return;
        if (!reduces(work.what) && type != DataType::kInt8) continue;
        if (!built(type, Combine::kSum)) continue;
        Case test{.work = work};
        test.work.type = reduces(work.what) ? type : DataType::kUint8;
        test.work.count = count;
        test.work.plan.chunk = 4096;
        test.work.reduction.average = reduces(work.what) && count != 2048;
        test.in_place = work.what == Collective::kAllReduce || work.what == Collective::kReduceScatter ||
                        work.what == Collective::kAllGather;
        ASSERT_EQ(cluster.run(test), "") << describe(test, ranks());
      }
    }
  });
}

TEST_P(Bulk, WorkThroughHostMemory) {
  REQUIRE_GPU();
  Cluster cluster(ranks(), false);
  for_each_bulk_algorithm(cluster.ranks().limits(), [&](CollectiveWork work) {
    for (const size_t count : {5UL, 30001UL}) {
      if (testing::Test::HasFatalFailure()) return;
      Case test{.work = work};
      test.work.count = count;
      test.work.plan.chunk = 2048;
      ASSERT_EQ(cluster.run(test), "") << describe(test, ranks());
    }
  });
}

/// A graph of three times the same launch on each rank. `meanwhile` runs while all captures are open.
template <class Meanwhile>
std::vector<cudaGraphExec_t> capture(Cluster& cluster, const std::vector<Launch>& launches, Meanwhile&& meanwhile) {
  const int n = cluster.ranks().size();
  std::vector<cudaStream_t> streams;
  for (int rank = 0; rank < n; ++rank) {
    const DeviceGuard on(cluster.ranks().device(rank));
    cudaStream_t stream = nullptr;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    streams.push_back(stream);
    for (int i = 0; i < 3; ++i) cluster.ranks().executor(rank).launch(launches[static_cast<size_t>(rank)], stream);
  }
  meanwhile();
  std::vector<cudaGraphExec_t> graphs;
  for (int rank = 0; rank < n; ++rank) {
    const DeviceGuard on(cluster.ranks().device(rank));
    const cudaStream_t stream = streams[static_cast<size_t>(rank)];
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    cuda_check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    cuda_check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    graphs.push_back(executable);
  }
  return graphs;
}

TEST_P(Bulk, GraphsReplayAndMixWithEagerCallsAlsoWhileOthersAreCaptured) {
  REQUIRE_GPU();
  Cluster cluster(ranks());
  for_each_bulk_algorithm(cluster.ranks().limits(), [&](CollectiveWork work) {
    if (testing::Test::HasFatalFailure()) return;
    work.count = 25003;
    work.plan.chunk = 1024;
    const Case test{.work = work};
    const std::vector<Launch> launches = cluster.set_up(test, false);
    cluster.ranks().prepare(launches);
    const std::vector<cudaGraphExec_t> graphs = capture(cluster, launches, [&] {
      cluster.ranks().launch(launches);
      cluster.ranks().synchronize();
      EXPECT_EQ(cluster.check(test, launches), "") << describe(test, ranks());
    });
    for (int round = 0; round < 3; ++round) {
      for (int rank = 0; rank < ranks(); ++rank) {
        const DeviceGuard on(cluster.ranks().device(rank));
        cuda_check(cudaGraphLaunch(graphs[static_cast<size_t>(rank)], cluster.ranks().stream(rank)), "cudaGraphLaunch");
      }
      cluster.ranks().launch(launches);
      cluster.ranks().synchronize();
      ASSERT_EQ(cluster.check(test, launches), "") << describe(test, ranks());
    }
    for (const cudaGraphExec_t graph : graphs) cuda_check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
  });
}

TEST(BulkAbort, EndsWhatWaitsForARankThatNeverCalls) {
  REQUIRE_GPU();
  Cluster cluster(2);
  Case test;
  test.work.type = DataType::kFloat32;
  test.work.count = 1000000;
  test.work.plan = {.algorithm = Algorithm::kTwoShot, .protocol = Protocol::kBulk, .channels = 4, .chunk = 4096};
  const std::vector<Launch> launches = cluster.set_up(test, false);
  cluster.ranks().prepare(launches);
  cluster.ranks().executor(0).launch(launches[0], cluster.ranks().stream(0));
  EXPECT_EQ(cudaStreamQuery(cluster.ranks().stream(0)), cudaErrorNotReady);
  cluster.ranks().executor(0).abort();
  cluster.ranks().synchronize();
}

}  // namespace

}  // namespace nitinol::gpu_testing
