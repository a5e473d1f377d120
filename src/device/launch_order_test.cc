// Who waits for whom, where kernels could keep each other from a GPU. What is launched here are functions of the host,
// which begin when their event is recorded, and end when they may.
#include "device/launch_order.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "device/stream.h"

namespace nitinol {
namespace {

constexpr int kRoom = 100;
constexpr int kFew = 10;

class LaunchOrders : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU here";
    for (Stream& stream : streams_) stream = Stream::create();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    for (Step& step : steps_) step.may_end = true;
    for (const Stream& stream : streams_) EXPECT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
  }

  static LaunchOrder::Options options(LaunchOrdering ordering = LaunchOrdering::kWhereNeeded) {
    return {.device = 0, .few = kFew, .room = kRoom, .ordering = ordering};
  }

  struct Step {
    std::atomic<bool> began{false};
    std::atomic<bool> may_end{false};
  };

  /// A launch of one kernel.
  Step& launch(LaunchOrder& order, const Stream& stream, int ctas, LaunchOrder::Room room = LaunchOrder::Room::kGpu) {
    LaunchOrder::Turn turn(order);
    Step& step = enqueue(order, stream, ctas, room);
    turn.done();
    return step;
  }
  /// Behind another one, which is to be let go before it begins.
  Step& launch_held(LaunchOrder& order, const Stream& stream, int ctas) {
    launch(order, stream, ctas);
    return launch(order, stream, ctas);
  }
  Step& enqueue(LaunchOrder& order, const Stream& stream, int ctas, LaunchOrder::Room room = LaunchOrder::Room::kGpu) {
    Step& step = steps_.emplace_back();
    const cudaEvent_t begun = order.next(stream.get(), ctas, room);
    if (begun != nullptr) cuda_check(cudaEventRecord(begun, stream.get()), "cudaEventRecord");
    const auto run = [](void* pointer) {
      auto& [began, may_end] = *static_cast<Step*>(pointer);
      began = true;
      while (!may_end) std::this_thread::sleep_for(std::chrono::microseconds(100));
    };
    cuda_check(cudaLaunchHostFunc(stream.get(), run, &step), "cudaLaunchHostFunc");
    return step;
  }
  static bool begins(const Step& step) {
    for (int i = 0; i < 10'000 && !step.began; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return step.began;
  }
  /// Long enough for what could begin.
  static bool stays_out(const Step& step) {
    for (int i = 0; i < 30 && !step.began; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return !step.began;
  }

  std::array<Stream, 4> streams_;
  std::deque<Step> steps_;
};

TEST_F(LaunchOrders, LaterKernelsWaitUntilEarlierOnesHaveBegun) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  const Step& before = launch(first, streams_[0], 90);
  Step& earlier = launch(first, streams_[0], 90);  // does not begin while that runs
  const Step& later = launch(second, streams_[1], 11);
  EXPECT_TRUE(begins(before));
  EXPECT_TRUE(stays_out(later));
  steps_[0].may_end = true;
  EXPECT_TRUE(begins(earlier));
  EXPECT_TRUE(begins(later));
  EXPECT_FALSE(earlier.may_end);
}

TEST_F(LaunchOrders, KernelsThatFitTogetherDoNotWait) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  const Step& earlier = launch_held(first, streams_[0], 80);
  EXPECT_TRUE(begins(launch(second, streams_[1], 20)));
  EXPECT_FALSE(earlier.began);
}

TEST_F(LaunchOrders, KernelsThatHaveAPartOfTheGpuWaitThoughTheyFit) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  const Step& earlier = launch_held(first, streams_[0], 20);
  const Step& later = launch(second, streams_[1], 20, LaunchOrder::Room::kPart);
  EXPECT_TRUE(stays_out(later));
  steps_[0].may_end = true;
  EXPECT_TRUE(begins(later));
  EXPECT_TRUE(begins(earlier));
}

TEST_F(LaunchOrders, SmallKernelsDoNotWaitForEachOther) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  LaunchOrder third(options());
  launch(third, streams_[2], 90).may_end = true;
  const Step& earlier = launch_held(first, streams_[0], 10);
  EXPECT_TRUE(begins(launch(second, streams_[1], 10)));
  EXPECT_FALSE(earlier.began);
}

TEST_F(LaunchOrders, ALargeKernelWaitsForSmallOnes) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  LaunchOrder third(options());
  launch_held(first, streams_[0], 10);
  launch(second, streams_[1], 10);
  const Step& large = launch(third, streams_[2], 90);
  EXPECT_TRUE(stays_out(large));
  steps_[0].may_end = true;
  EXPECT_TRUE(begins(large));
}

TEST_F(LaunchOrders, SmallKernelsWaitForLargeOnesThoughOthersHaveDoneSo) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  LaunchOrder third(options());
  launch_held(first, streams_[0], 91);
  launch(first, streams_[0], 10);
  const Step& one = launch(second, streams_[1], 10);
  const Step& other = launch(third, streams_[2], 10);
  EXPECT_TRUE(stays_out(one));
  EXPECT_TRUE(stays_out(other));
  steps_[0].may_end = true;
  EXPECT_TRUE(begins(one));
  EXPECT_TRUE(begins(other));
  EXPECT_FALSE(steps_[2].began);  // that is small too
}

TEST_F(LaunchOrders, TheLargestKernelsOfAllCount) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  LaunchOrder third(options());
  launch(first, streams_[0], 50).may_end = true;
  const Step& earlier = launch_held(first, streams_[0], 11);
  EXPECT_TRUE(begins(launch(second, streams_[1], 50)));
  EXPECT_FALSE(earlier.began);
  const Step& crowded = launch(third, streams_[2], 11);  // also waits for what did not wait itself
  EXPECT_TRUE(stays_out(crowded));
  steps_[1].may_end = true;
  EXPECT_TRUE(begins(crowded));
}

TEST_F(LaunchOrders, ACommunicatorThatIsGoneCountsNoMore) {
  LaunchOrder first(options());
  auto second = std::make_unique<LaunchOrder>(options());
  launch(*second, streams_[1], 90).may_end = true;
  second.reset();
  LaunchOrder third(options());
  const Step& earlier = launch_held(first, streams_[0], 50);
  EXPECT_TRUE(begins(launch(third, streams_[2], 50)));
  EXPECT_FALSE(earlier.began);
}

TEST_F(LaunchOrders, KernelsWaitThroughThoseBetween) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  LaunchOrder third(options());
  launch_held(first, streams_[0], 90);
  const Step& between = launch(second, streams_[1], 90);
  const Step& last = launch(third, streams_[2], 90);
  EXPECT_TRUE(stays_out(last));
  EXPECT_FALSE(between.began);
  steps_[0].may_end = true;
  EXPECT_TRUE(begins(between));
  EXPECT_TRUE(begins(last));
}

TEST_F(LaunchOrders, AllStreamsOfALaunchWait) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  launch_held(first, streams_[0], 90);
  LaunchOrder::Turn turn(second);
  const Step& one = enqueue(second, streams_[1], 60);
  const Step& beside = enqueue(second, streams_[2], 60);
  turn.done();
  EXPECT_TRUE(stays_out(one));
  EXPECT_TRUE(stays_out(beside));
  steps_[0].may_end = true;
  EXPECT_TRUE(begins(one));
  EXPECT_TRUE(begins(beside));
}

TEST_F(LaunchOrders, AllStreamsOfALaunchAreWaitedFor) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  LaunchOrder third(options(LaunchOrdering::kNone));
  launch(third, streams_[1], 1);
  {
    LaunchOrder::Turn turn(first);
    enqueue(first, streams_[0], 60);
    enqueue(first, streams_[1], 60);
    turn.done();
  }
  const Step& later = launch(second, streams_[2], 60);
  EXPECT_TRUE(begins(steps_[1]));
  EXPECT_TRUE(stays_out(later));
  steps_[0].may_end = true;
  EXPECT_TRUE(begins(later));
}

TEST_F(LaunchOrders, WhatWasLaunchedBeforeTheSecondCommunicatorWasMadeIsWaitedForToo) {
  LaunchOrder first(options());
  const Step& earlier = launch_held(first, streams_[0], 90);
  LaunchOrder second(options());
  const Step& later = launch(second, streams_[1], 90);
  EXPECT_TRUE(stays_out(later));
  steps_[0].may_end = true;
  EXPECT_TRUE(begins(earlier));
  EXPECT_TRUE(begins(later));
}

TEST_F(LaunchOrders, ALaunchThatFailedChangesNothing) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  LaunchOrder third(options());
  launch_held(first, streams_[0], 90);
  {
    const LaunchOrder::Turn turn(second);
    second.next(streams_[1].get(), 90);
  }
  const Step& later = launch(third, streams_[2], 90);
  EXPECT_TRUE(stays_out(later));
  steps_[0].may_end = true;
  EXPECT_TRUE(begins(later));
}

/// In any order, but each after what had been launched before both.
TEST_F(LaunchOrders, LaunchesOfTwoThreadsAtTheSameTimeAllCount) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  LaunchOrder third(options());
  launch_held(first, streams_[0], 90);
  LaunchOrder::Turn one(second);
  LaunchOrder::Turn other(third);
  enqueue(second, streams_[1], 90);
  enqueue(third, streams_[2], 90);
  one.done();
  other.done();
  const Step& last = launch(first, streams_[3], 90);
  EXPECT_TRUE(stays_out(steps_[2]));
  EXPECT_FALSE(steps_[3].began);
  EXPECT_FALSE(last.began);
  steps_[0].may_end = true;
  EXPECT_TRUE(begins(last));
  EXPECT_TRUE(steps_[2].began);
  EXPECT_TRUE(steps_[3].began);
}

TEST_F(LaunchOrders, ACommunicatorMayGoWhileAnotherIsAboutToWaitForIt) {
  auto first = std::make_unique<LaunchOrder>(options());
  LaunchOrder second(options());
  launch_held(*first, streams_[0], 90);
  LaunchOrder::Turn turn(second);
  enqueue(second, streams_[1], 90);
  first.reset();
  const Step& beside = enqueue(second, streams_[2], 20);
  turn.done();
  EXPECT_TRUE(stays_out(beside));
  steps_[0].may_end = true;
  EXPECT_TRUE(begins(beside));
}

TEST_F(LaunchOrders, AlwaysMeansThoseThatFitTogetherToo) {
  LaunchOrder first(options(LaunchOrdering::kAlways));
  LaunchOrder second(options(LaunchOrdering::kAlways));
  launch_held(first, streams_[0], 1);
  const Step& later = launch(second, streams_[1], 1);
  EXPECT_TRUE(stays_out(later));
  steps_[0].may_end = true;
  EXPECT_TRUE(begins(later));
}

TEST_F(LaunchOrders, NoneMeansNobodyWaits) {
  LaunchOrder first(options());
  LaunchOrder second(options(LaunchOrdering::kNone));
  LaunchOrder third(options(LaunchOrdering::kNone));
  launch_held(first, streams_[0], 90);
  launch_held(second, streams_[1], 90);
  EXPECT_TRUE(begins(launch(third, streams_[2], 90)));
  EXPECT_FALSE(steps_[1].began);
  EXPECT_FALSE(steps_[3].began);
}

TEST_F(LaunchOrders, ThreadsThatLaunchAtTheSameTimeFailWhereTheyMust) {
  LaunchOrder::Options strict = options(LaunchOrdering::kAlways);
  strict.races_fail = true;
  LaunchOrder first(strict);
  LaunchOrder second(strict);
  {
    const LaunchOrder::Turn turn(first);
    const auto race = [&] { const LaunchOrder::Turn other(second); };
    EXPECT_THROW(race(), Error);
  }
  EXPECT_TRUE(begins(launch(second, streams_[1], 1)));

  LaunchOrder third(options(LaunchOrdering::kAlways));
  const LaunchOrder::Turn turn(first);
  EXPECT_TRUE(begins(launch(third, streams_[2], 1)));
}

/// Two streams, captured into one graph.
class CapturedLaunches : public LaunchOrders {
 protected:
  void begin() {
    fork_ = Event::create();
    join_ = Event::create();
    ASSERT_EQ(cudaStreamBeginCapture(streams_[0].get(), cudaStreamCaptureModeRelaxed), cudaSuccess);
    fork_.record(streams_[0].get());
    fork_.make_wait(streams_[1].get());
  }
  cudaGraph_t end() {
    join_.record(streams_[1].get());
    join_.make_wait(streams_[0].get());
    cudaGraph_t graph = nullptr;
    cuda_check(cudaStreamEndCapture(streams_[0].get(), &graph), "cudaStreamEndCapture");
    return graph;
  }

  Event fork_;
  Event join_;
};

size_t edges_of(cudaGraph_t graph) {
  size_t count = 0;
  cuda_check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  cuda_check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  size_t edges = 0;
  for (const cudaGraphNode_t node : nodes) {
    size_t of_node = 0;
    cuda_check(cudaGraphNodeGetDependencies(node, nullptr, nullptr, &of_node), "cudaGraphNodeGetDependencies");
    edges += of_node;
  }
  return edges;
}

TEST_F(CapturedLaunches, WaitForEachOtherWithinTheirGraph) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  launch_held(first, streams_[2], 90);  // not into the graph: nobody there waits for it
  begin();
  Step& earlier = launch_held(first, streams_[0], 90);
  Step& later = launch(second, streams_[1], 90);
  const cudaGraph_t graph = end();
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, streams_[3].get()), cudaSuccess);
  EXPECT_TRUE(begins(steps_[2]));
  EXPECT_TRUE(stays_out(later));
  steps_[2].may_end = true;
  EXPECT_TRUE(begins(earlier));
  EXPECT_TRUE(begins(later));
  EXPECT_FALSE(steps_[1].began);
  earlier.may_end = true;
  later.may_end = true;
  ASSERT_EQ(cudaStreamSynchronize(streams_[3].get()), cudaSuccess);
  ASSERT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CapturedLaunches, OfSmallKernelsAreLeftAlone) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  launch(first, streams_[2], 95).may_end = true;
  begin();
  launch_held(first, streams_[0], 95);
  launch(second, streams_[1], 10);
  const cudaGraph_t graph = end();
  EXPECT_EQ(edges_of(graph), 1U);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CapturedLaunches, OutsideNobodyWaitsForThem) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  begin();
  launch(first, streams_[0], 90);
  const cudaGraph_t graph = end();
  EXPECT_TRUE(begins(launch(second, streams_[1], 90)));
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CapturedLaunches, OfManyCapturesEachHasItsOrder) {
  LaunchOrder first(options());
  LaunchOrder second(options());
  for (int i = 0; i < 100; ++i) {
    begin();
    launch(first, streams_[0], 90);
    launch(first, streams_[0], 90);
    launch(second, streams_[1], 90);
    const cudaGraph_t graph = end();
    EXPECT_EQ(edges_of(graph), 2U) << "to the first launch";
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
}

}  // namespace
}  // namespace nitinol
