// The executor as communicators see it: launches in streams and graphs.
#include "executor/executor.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "device/check.h"
#include "executor/cpu/team_testing.h"

namespace nitinol {
namespace {

/// Ranks of one process, one stream each, all driven by this thread.
class StreamsTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 4;

  void SetUp() override {
    std::vector<Peer> peers(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) peers[static_cast<size_t>(rank)].rank = rank;
    for (int rank = 0; rank < kRanks; ++rank) {
      ExecutorSetup setup;
      setup.rank = rank;
      setup.peers = peers;
      setup.identity = {reinterpret_cast<uint64_t>(this), 9};
      setup.failed = [](ncclResult_t, const std::string& sentence) { ADD_FAILURE() << sentence; };
      executors_.push_back(make_executor(std::move(setup)));
      cuda_check(cudaSetDevice(rank), "cudaSetDevice");
      streams_.emplace_back();
      cuda_check(cudaStreamCreateWithFlags(&streams_.back(), cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      inputs_.emplace_back(1000, rank + 1);
      outputs_.emplace_back(1000, -1);
    }
  }

  void TearDown() override {
    for (const cudaStream_t stream : streams_) cuda_check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    cuda_check(cudaSetDevice(0), "cudaSetDevice");
  }

  Launch sum_of(int rank) {
    CollectiveWork work;
    work.what = Collective::kAllReduce;
    work.input = inputs_[static_cast<size_t>(rank)].data();
    work.output = outputs_[static_cast<size_t>(rank)].data();
    work.count = 1000;
    work.type = DataType::kInt32;
    work.plan = {.algorithm = Algorithm::kTwoShot, .chunk = 64};
    return Launch{.collectives = {work}, .messages = {}};
  }
  void launch_on_all() {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      executors_[rank]->prepare(sum_of(static_cast<int>(rank)));
      executors_[rank]->launch(sum_of(static_cast<int>(rank)), streams_[rank]);
    }
  }
  void synchronize_all() {
    for (const cudaStream_t stream : streams_) cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  void expect_outputs(int value) {
    for (const std::vector<int>& output : outputs_) EXPECT_EQ(output, std::vector<int>(1000, value));
  }

  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<cudaStream_t> streams_;
  std::vector<std::vector<int>> inputs_;
  std::vector<std::vector<int>> outputs_;
};

TEST_F(StreamsTest, RunLaunchesOfManyRanksFromOneThread) {
  for (int i = 0; i < 100; ++i) launch_on_all();
  synchronize_all();
  expect_outputs(10);
}

TEST_F(StreamsTest, RunACapturedLaunchAtEveryReplay) {
  std::vector<cudaGraphExec_t> replays(kRanks);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    executors_[rank]->prepare(sum_of(static_cast<int>(rank)));
    cudaGraph_t graph = nullptr;
    cuda_check(cudaStreamBeginCapture(streams_[rank], cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    executors_[rank]->launch(sum_of(static_cast<int>(rank)), streams_[rank]);
    cuda_check(cudaStreamEndCapture(streams_[rank], &graph), "cudaStreamEndCapture");
    cuda_check(cudaGraphInstantiate(&replays[rank], graph, 0), "cudaGraphInstantiate");
    cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  }
  expect_outputs(-1);
  for (int i = 1; i < 20; ++i) {
    for (std::vector<int>& input : inputs_) input.assign(1000, i);
    for (size_t rank = 0; rank < kRanks; ++rank)
      cuda_check(cudaGraphLaunch(replays[rank], streams_[rank]), "cudaGraphLaunch");
    synchronize_all();
    expect_outputs(4 * i);
    launch_on_all();  // replays and eager launches mix
    synchronize_all();
  }
  executors_.clear();  // graphs may outlive the executor
  for (const cudaGraphExec_t replay : replays) cuda_check(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
}

TEST_F(StreamsTest, EndWhenAborted) {
  executors_[0]->prepare(sum_of(0));
  executors_[0]->launch(sum_of(0), streams_[0]);  // nobody else comes
  executors_[0]->abort();
  cuda_check(cudaStreamSynchronize(streams_[0]), "cudaStreamSynchronize");
}

TEST_F(StreamsTest, LimitsAreOfTheSimpleProtocolAlone) {
  const Limits limits = executors_[0]->limits();
  EXPECT_EQ(limits.channels, 1);
  EXPECT_GE(limits.slot_bytes[static_cast<size_t>(Protocol::kSimple)], 65536U);
  EXPECT_EQ(limits.slot_bytes[static_cast<size_t>(Protocol::kLL)], 0U);
}

}  // namespace
}  // namespace nitinol
