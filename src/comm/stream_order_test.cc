// Launches of one communicator stay in their order over streams and graphs, and how far they have come is known. What
// is launched here are functions of the host.
#include "comm/stream_order.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <deque>
#include <limits>
#include <mutex>
#include <random>
#include <thread>

namespace nitinol {
namespace {

class StreamOrders : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU here";
    idle_ = order_.idle_probe();
    through_ = order_.through_probe();
  }

  /// Each waits until it may end, and writes down its number. The one that dallies gives others, which are not to run
  /// before it, the time to do so.
  void launch(const std::vector<cudaStream_t>& streams) {
    steps_.push_back({this, static_cast<int>(steps_.size()) + 1});
    const cudaStream_t stream = order_.enter(streams, [] { return std::shared_ptr<void>(); });
    const auto run = [](void* step) {
      auto& [self, number] = *static_cast<Step*>(step);
      while (self->may_end_ < number) std::this_thread::sleep_for(std::chrono::microseconds(100));
      for (int i = 0; i < 200 && number == self->dallies_ && self->ran().empty(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const std::lock_guard lock(self->mutex_);
      self->ran_.push_back(number);
    };
    cuda_check(cudaLaunchHostFunc(stream, run, &steps_.back()), "cudaLaunchHostFunc");
    order_.leave(streams);
  }
  void let_end(int number) { may_end_ = number; }
  void expect_through(std::optional<uint64_t> launches) {
    while (through_() != launches) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<int> ran() {
    const std::lock_guard lock(mutex_);
    return ran_;
  }

  struct Step {
    StreamOrders* self;
    int number;
  };
  StreamOrder order_;
  std::function<bool()> idle_;
  std::function<std::optional<uint64_t>()> through_;
  std::atomic<int> may_end_{0};
  std::atomic<int> dallies_{0};
  std::deque<Step> steps_;
  std::mutex mutex_;
  std::vector<int> ran_;
};

TEST_F(StreamOrders, KnowHowManyLaunchesAreThrough) {
  const Stream first = Stream::create_urgent();
  const Stream second = Stream::create_urgent();
  EXPECT_TRUE(idle_());
  EXPECT_EQ(through_(), 0U);
  for (int i = 0; i < 20; ++i) launch({i % 3 == 0 ? first.get() : second.get()});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(through_(), static_cast<uint64_t>(i));
    EXPECT_FALSE(idle_());
    EXPECT_FALSE(order_.idle());
    let_end(i + 1);
    expect_through(i + 1);
  }
  EXPECT_TRUE(idle_());
  EXPECT_TRUE(order_.idle());
  EXPECT_EQ(ran().size(), 20U);
  EXPECT_TRUE(std::is_sorted(ran_.begin(), ran_.end()));
}

TEST_F(StreamOrders, RememberTheLastLaunches) {
  const Stream stream = Stream::create_urgent();
  for (int i = 0; i < 300; ++i) launch({stream.get()});
  EXPECT_GE(through_(), 1U);  // no less than are
  EXPECT_LT(through_(), 200U);
  const auto exactly = order_.exact_probe();
  EXPECT_EQ(exactly(), std::nullopt);
  let_end(250);
  expect_through(250);
  EXPECT_EQ(exactly(), 250U);
  let_end(300);
  expect_through(300);
}

TEST_F(StreamOrders, ALaunchOfSeveralStreamsComesBetweenWhatIsInThem) {
  const Stream first = Stream::create_urgent();
  const Stream second = Stream::create_urgent();
  launch({first.get()});
  launch({second.get(), first.get()});
  launch({first.get()});
  for (int number = 1; number <= 3; ++number) {
    let_end(number);
    expect_through(static_cast<uint64_t>(number));
  }
  EXPECT_EQ(ran(), (std::vector<int>{1, 2, 3}));
}

TEST_F(StreamOrders, GraphsAndLaunchesMix) {
  const Stream first = Stream::create_urgent();
  const Stream second = Stream::create_urgent();
  launch({first.get()});
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(second.get(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  launch({second.get()});
  ASSERT_EQ(cudaStreamEndCapture(second.get(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_FALSE(idle_());  // the first launch
  EXPECT_FALSE(order_.idle());
  EXPECT_EQ(through_(), std::nullopt);
  ASSERT_EQ(cudaGraphLaunch(executable, second.get()), cudaSuccess);
  launch({first.get()});
  let_end(2);
  while (ran().size() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(idle_());
  let_end(3);
  while (!order_.idle()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(idle_());
  EXPECT_EQ(ran(), (std::vector<int>{1, 2, 3}));
  ASSERT_EQ(cudaGraphLaunch(executable, second.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(second.get()), cudaSuccess);
  EXPECT_EQ(ran(), (std::vector<int>{1, 2, 3, 2}));
  ASSERT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(StreamOrders, LaunchesOfAGraphStayInOrderThoughOthersCameBetweenTheirCaptures) {
  const Stream first = Stream::create_urgent();
  const Stream second = Stream::create_urgent();
  const Stream beside = Stream::create_urgent();
  const Event fork = Event::create();
  const Event join = Event::create();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(first.get(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  fork.record(first.get());
  fork.make_wait(second.get());
  launch({first.get()});
  launch({beside.get()});
  launch({second.get()});
  join.record(second.get());
  join.make_wait(first.get());
  ASSERT_EQ(cudaStreamEndCapture(first.get(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  let_end(3);
  ASSERT_EQ(cudaStreamSynchronize(beside.get()), cudaSuccess);
  may_end_ = 0;
  ASSERT_EQ(cudaGraphLaunch(executable, first.get()), cudaSuccess);
  launch({beside.get()});
  EXPECT_EQ(cudaStreamQuery(first.get()), cudaErrorNotReady);
  EXPECT_EQ(ran(), (std::vector<int>{2}));
  let_end(4);
  ASSERT_EQ(cudaStreamSynchronize(beside.get()), cudaSuccess);
  EXPECT_EQ(ran(), (std::vector<int>{2, 1, 3, 4}));
  EXPECT_TRUE(idle_());
  ASSERT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(StreamOrders, AStreamWithTheHandleOfADestroyedOneWaitsForItsWork) {
  let_end(2);
  dallies_ = 1;
  Stream old = Stream::create();
  const cudaStream_t handle = old.get();
  launch({handle});
  old = Stream();
  const Stream stream = Stream::create();
  if (stream.get() != handle) GTEST_SKIP() << "the handle is not used again";
  launch({handle});
  ASSERT_EQ(cudaStreamSynchronize(handle), cudaSuccess);
  EXPECT_EQ(ran(), (std::vector<int>{1, 2}));
}

TEST_F(StreamOrders, ThePerThreadStreamOfAThreadWaitsForThatOfAnother) {
  let_end(2);
  dallies_ = 1;
  launch({cudaStreamPerThread});
  std::thread([this] {
    launch({cudaStreamPerThread});
    EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
  }).join();
  EXPECT_EQ(ran(), (std::vector<int>{1, 2}));
}

/// Two streams of a capture.
class CapturedStreams {
 public:
  CapturedStreams() {
    cuda_check(cudaStreamBeginCapture(first_.get(), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    event_.record(first_.get());
    event_.make_wait(second_.get());
  }
  cudaStream_t first() const { return first_.get(); }
  cudaStream_t second() const { return second_.get(); }
  cudaGraph_t end() const {
    event_.record(second_.get());
    event_.make_wait(first_.get());
    cudaGraph_t graph = nullptr;
    cuda_check(cudaStreamEndCapture(first_.get(), &graph), "cudaStreamEndCapture");
    return graph;
  }

 private:
  Stream first_ = Stream::create_urgent();
  Stream second_ = Stream::create_urgent();
  Event event_ = Event::create();
};

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph, cudaGraphNodeType type) {
  size_t count = 0;
  cuda_check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  cuda_check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  std::erase_if(nodes, [type](cudaGraphNode_t node) {
    cudaGraphNodeType found = cudaGraphNodeTypeEmpty;
    cuda_check(cudaGraphNodeGetType(node, &found), "cudaGraphNodeGetType");
    return found != type;
  });
  return nodes;
}

bool comes_after(cudaGraphNode_t later, cudaGraphNode_t earlier) {
  size_t count = 0;
  cuda_check(cudaGraphNodeGetDependencies(later, nullptr, nullptr, &count), "cudaGraphNodeGetDependencies");
  std::vector<cudaGraphNode_t> before(count);
  cuda_check(cudaGraphNodeGetDependencies(later, before.data(), nullptr, &count), "cudaGraphNodeGetDependencies");
  return std::any_of(before.begin(), before.end(),
                     [&](cudaGraphNode_t node) { return node == earlier || comes_after(node, earlier); });
}

/// All launches one after the other, and before them one wait for what was launched earlier.
void expect_order(cudaGraph_t graph) {
  const std::vector<cudaGraphNode_t> launches = nodes_of(graph, cudaGraphNodeTypeHost);
  const std::vector<cudaGraphNode_t> waits = nodes_of(graph, cudaGraphNodeTypeWaitEvent);
  ASSERT_EQ(waits.size(), 1U);
  for (const cudaGraphNode_t one : launches) {
    EXPECT_TRUE(comes_after(one, waits[0]));
    for (const cudaGraphNode_t other : launches) {
      EXPECT_TRUE(one == other || comes_after(one, other) || comes_after(other, one));
    }
  }
}

TEST_F(StreamOrders, CapturesThatTakeTurnsAreEachInOrder) {
  const CapturedStreams a;
  const CapturedStreams b;
  let_end(std::numeric_limits<int>::max());
  launch({a.first()});
  launch({b.first()});
  launch({a.second()});
  launch({b.second(), b.first()});
  launch({a.first()});
  launch({b.first()});
  std::array<cudaGraph_t, 2> graphs{a.end(), b.end()};
  std::array<cudaGraphExec_t, 2> executables{};
  for (size_t i = 0; i < 2; ++i) {
    expect_order(graphs[i]);
    ASSERT_EQ(cudaGraphInstantiate(&executables[i], graphs[i], 0), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graphs[i]), cudaSuccess);
  }
  const Stream stream = Stream::create_urgent();
  const Stream other = Stream::create_urgent();
  dallies_ = 2;
  ASSERT_EQ(cudaGraphLaunch(executables[1], stream.get()), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executables[0], other.get()), cudaSuccess);
  launch({stream.get()});
  ASSERT_EQ(cudaGraphLaunch(executables[1], other.get()), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other.get()), cudaSuccess);
  EXPECT_TRUE(idle_());
  EXPECT_EQ(ran(), (std::vector<int>{2, 4, 6, 1, 3, 5, 7, 2, 4, 6}));
  for (const cudaGraphExec_t each : executables) ASSERT_EQ(cudaGraphExecDestroy(each), cudaSuccess);
}

TEST_F(StreamOrders, GraphsThatDoNotMixHoldLaunchesAlone) {
  order_ = StreamOrder(false).anew();
  idle_ = order_.idle_probe();
  const CapturedStreams captured;
  const Stream stream = Stream::create_urgent();
  launch({stream.get()});
  launch({captured.first()});
  launch({captured.second()});
  launch({captured.first()});
  cudaGraph_t graph = captured.end();
  EXPECT_TRUE(nodes_of(graph, cudaGraphNodeTypeWaitEvent).empty());
  EXPECT_TRUE(nodes_of(graph, cudaGraphNodeTypeEventRecord).empty());
  const std::vector<cudaGraphNode_t> launches = nodes_of(graph, cudaGraphNodeTypeHost);
  ASSERT_EQ(launches.size(), 3U);
  EXPECT_TRUE(comes_after(launches[1], launches[0]));
  EXPECT_TRUE(comes_after(launches[2], launches[1]));
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_FALSE(idle_());  // the launch that was not captured
  EXPECT_FALSE(order_.idle());
  ASSERT_EQ(cudaGraphLaunch(executable, stream.get()), cudaSuccess);
  launch({stream.get()});
  let_end(5);
  ASSERT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
  EXPECT_TRUE(idle_());
  EXPECT_TRUE(order_.idle());
  EXPECT_EQ(ran(), (std::vector<int>{1, 2, 3, 4, 5}));
  ASSERT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

TEST_F(StreamOrders, NeverSayThatFewerAreThroughThanAreWhileOthersCome) {
  const Stream stream = Stream::create_urgent();
  std::atomic<bool> all_launched{false};
  constexpr int kLaunches = 3000;
  let_end(kLaunches);
  std::thread launcher([&] {
    for (int i = 0; i < kLaunches; ++i) launch({stream.get()});
    all_launched = true;
  });
  while (!all_launched) {
    const size_t begun = ran().size();
    const auto through = through_();
    EXPECT_GE(through.value_or(begun) + 1, begun);
    std::this_thread::yield();
  }
  launcher.join();
  expect_through(kLaunches);
}

/// Launches in any streams and graphs, which come and go; each graph may be launched several times.
class MixedLaunches : public StreamOrders {
 protected:
  void SetUp() override {
    StreamOrders::SetUp();
    for (Stream& stream : streams_) stream = Stream::create_urgent();
    let_end(std::numeric_limits<int>::max());
  }
  void TearDown() override {
    for (const Graph& graph : graphs_) EXPECT_EQ(cudaGraphExecDestroy(graph.executable), cudaSuccess);
  }

  size_t draw(size_t below) { return random_() % below; }
  Stream& any_stream() { return streams_[draw(streams_.size())]; }
  void launch_eagerly(const std::vector<cudaStream_t>& streams) {
    launch(streams);
    expected_.push_back(static_cast<int>(steps_.size()));
  }
  /// One, or several of which the captures take turns.
  void make_graphs() {
    std::deque<CapturedStreams> captures(1 + draw(3));
    std::vector<Graph> made(captures.size());
    for (size_t i = captures.size() + draw(6); i > 0; --i) {
      const size_t which = draw(captures.size());
      launch({draw(2) == 0 ? captures[which].first() : captures[which].second()});
      made[which].steps.push_back(static_cast<int>(steps_.size()));
      if (draw(3) == 0) launch_eagerly({any_stream().get()});
    }
    for (size_t i = 0; i < captures.size(); ++i) {
      const cudaGraph_t graph = captures[i].end();
      ASSERT_EQ(cudaGraphInstantiate(&made[i].executable, graph, 0), cudaSuccess);
      ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
      graphs_.push_back(std::move(made[i]));
    }
  }
  void launch_graph() {
    if (graphs_.empty()) return;
    const Graph& graph = graphs_[draw(graphs_.size())];
    ASSERT_EQ(cudaGraphLaunch(graph.executable, any_stream().get()), cudaSuccess);
    expected_.insert(expected_.end(), graph.steps.begin(), graph.steps.end());
  }

  struct Graph {
    cudaGraphExec_t executable = nullptr;
    std::vector<int> steps;
  };
  std::mt19937 random_{1};
  std::array<Stream, 4> streams_;
  std::vector<Graph> graphs_;
  std::vector<int> expected_;
};

TEST_F(MixedLaunches, RunInTheOrderInWhichTheyWereMade) {
  for (int i = 0; i < 2000 && !HasFatalFailure(); ++i) {
    const bool with_graphs = i > 500;
    switch (draw(8)) {
      case 0: any_stream() = Stream::create_urgent(); break;
      case 1: launch_eagerly({streams_[0].get(), streams_[2].get(), streams_[1].get()}); break;
      case 2:
        if (with_graphs && draw(4) == 0) make_graphs();
        break;
      case 3:
      case 4: launch_graph(); break;
      default: launch_eagerly({any_stream().get()});
    }
  }
  while (!idle_()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ran(), expected_);
}

}  // namespace
}  // namespace nitinol
