// NITINOL_CHECK=strict: sends and receives that are captured into graphs, beside calls that are compared on the host.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "captured.h"
#include "cluster.h"
#include "nccl.h"
#include "scarcity.h"

namespace nitinol::testing {
namespace {

class StrictGraphs : public ::testing::Test {
 protected:
  StrictGraphs() { setenv("NITINOL_CHECK", "strict", 1); }
  ~StrictGraphs() override { unsetenv("NITINOL_CHECK"); }
};

constexpr bool kCanBeKnown = kThreadsAreKnown && kStreamsAreKnown;
constexpr size_t kLarge = 1 << 20;  // of which not all is sent before somebody receives it

/// A communicator of all ranks, and something to call on it, in graphs or not.
class Scene {
 public:
  Scene(Rank rank, bool blocking) : self_(rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    const ncclResult_t split = ncclCommSplit(rank.comm, 0, rank.rank, &self_.comm, &config);
    EXPECT_CALL(settled(split, rank.comm));
    EXPECT_CALL(settled(ncclInProgress, self_.comm));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data_), 2 * kLarge * sizeof(int)));
  }
  int rank() const { return self_.rank; }
  ncclComm_t comm() const { return self_.comm; }
  int* data() const { return data_; }
  ncclResult_t send(int peer, size_t count) const {
    return settled(ncclSend(data_, count, ncclInt, peer, self_.comm, self_.stream), self_.comm);
  }
  ncclResult_t receive(int peer, size_t count) const {
    return settled(ncclRecv(data_ + kLarge, count, ncclInt, peer, self_.comm, self_.stream), self_.comm);
  }
  ncclResult_t all_reduce() const {
    return settled(ncclAllReduce(data_, data_, 1, ncclInt, ncclSum, self_.comm, self_.stream), self_.comm);
  }

  /// What is called is to succeed.
  cudaGraphExec_t capture(const std::function<void()>& calls) const { return captured(self_.stream, calls); }
  void launch(cudaGraphExec_t executable) const { EXPECT_CALL(cudaGraphLaunch(executable, self_.stream)); }
  void synchronise() const { EXPECT_CALL(cudaStreamSynchronize(self_.stream)); }
  void run_in_a_graph(const std::function<void()>& calls) const {
    const cudaGraphExec_t executable = capture(calls);
    launch(executable);
    synchronise();
    EXPECT_CALL(cudaGraphExecDestroy(executable));
  }
  /// What is called fails, and the capture is given up.
  void capture_in_vain(const std::function<ncclResult_t()>& call) const {
    cudaGraph_t graph = nullptr;
    EXPECT_CALL(cudaStreamBeginCapture(self_.stream, cudaStreamCaptureModeThreadLocal));
    expect_that(call() == ncclInvalidUsage, "the captured call");
    static_cast<void>(cudaStreamEndCapture(self_.stream, &graph));
    if (graph != nullptr) EXPECT_CALL(cudaGraphDestroy(graph));
  }

  /// The rank is to hear, now or soon, of these calls.
  void must_hear_of(const std::vector<std::string>& calls) const {
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) state = state_of(self_.comm);
    const std::string sentence = ncclGetLastError(self_.comm);
    expect_that(state == ncclInvalidUsage, "state " + std::to_string(state));
    for (const std::string& call : calls) {
      expect_that(sentence.find(call) != std::string::npos, sentence);
    }
  }
  void end_failed() const {
    EXPECT_CALL(ncclCommAbort(self_.comm));
    synchronise();
    EXPECT_CALL(cudaFree(data_));
  }
  void end() const {
    synchronise();
    EXPECT_CALL(ncclCommDestroy(self_.comm));
    EXPECT_CALL(cudaFree(data_));
  }

 private:
  Rank self_;
  int* data_ = nullptr;
};

/// In programs of one thread each, of which therefore is known what they call next.
std::string run_single_threads(int ranks, const std::function<void(const Rank&)>& body) {
  return run_processes(ranks, [&](int process, const ncclUniqueId& id) {
    Rank rank{process, ranks, nullptr, nullptr};
    use_device_of(process);
    EXPECT_CALL(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking));
    EXPECT_CALL(ncclCommInitRank(&rank.comm, ranks, id, process));
    body(rank);
    EXPECT_CALL(ncclCommDestroy(rank.comm));
    EXPECT_CALL(cudaStreamDestroy(rank.stream));
  });
}

/// A message that rank 0 captures and launches, and what it is called where it is told.
struct Message {
  std::function<void(const Scene&)> call;
  std::string text;
};

std::vector<Message> messages() {
  return {
      {[](const Scene& s) { EXPECT_CALL(s.receive(1, 5)); }, "Recv number 1 from rank 1 (count 5, type int32)"},
      {[](const Scene& s) { EXPECT_CALL(s.send(1, kLarge)); }, "Send number 1 to rank 1 (count 1048576, type int32)"},
      {[](const Scene& s) {
         EXPECT_CALL(ncclGroupStart());
         static_cast<void>(s.send(1, 5));
         static_cast<void>(s.receive(1, 5));
         EXPECT_CALL(ncclGroupEnd());
       },
       "Recv number 1 from rank 1 (count 5, type int32)"},
  };
}

/// Rank 1 has run graphs before, so it could be that one is still to run which has the other end.
void call_beside(const Rank& rank, bool blocking, const Message& message) {
  const Scene s(rank, blocking);
  s.run_in_a_graph([&] { EXPECT_CALL(s.all_reduce()); });
  if (s.rank() == 0) {
    s.run_in_a_graph([&] { message.call(s); });
  } else {
    expect_that(s.all_reduce() == ncclInvalidUsage, "the call");
  }
  s.must_hear_of({message.text, "which calls AllReduce number 2 (count 1, type int32, op sum) next"});
  s.end_failed();
}

TEST_F(StrictGraphs, AMessageInOneIsToldWhoseOtherRankIsInACollective) {
#if !defined(NITINOL_VGPU)
  GTEST_SKIP() << "whether a graph is still to run is not known on GPUs";
#endif
  for (const std::vector<int>& processes : {std::vector<int>{1, 1}, {2}}) {
    EXPECT_EQ("", run_ranks(processes, [](Rank& rank) {
                for (const bool blocking : {true, false}) {
                  for (const Message& message : messages()) call_beside(rank, blocking, message);
                }
              }));
  }
}

TEST_F(StrictGraphs, AMessageInOneIsToldWhoseOtherRankCapturesACollective) {
  if (!kCanBeKnown) GTEST_SKIP();
  const auto body = [](const Rank& rank, bool blocking, bool first, const Message& message) {
    const Scene s(rank, blocking);
    if (!first) s.run_in_a_graph([&] { EXPECT_CALL(s.all_reduce()); });
    if (s.rank() == 0) {
      s.run_in_a_graph([&] { message.call(s); });
    } else {
      s.capture_in_vain([&] { return s.all_reduce(); });
    }
    const std::string collective = first ? "AllReduce number 1 (" : "AllReduce number 2 (";
    s.must_hear_of({message.text, collective, "in a circle over waits on the host"});
    s.end_failed();
  };
  EXPECT_EQ("", run_single_threads(2, [&](const Rank& rank) {
              for (const bool blocking : {true, false}) {
                for (const bool first : {true, false}) {
                  for (const Message& message : messages()) body(rank, blocking, first, message);
                }
              }
            }));
}

/// Nothing of the broadcast's data is to come from rank 0, but its call is.
TEST_F(StrictGraphs, AMessageInOneIsToldWhoseOtherRankIsInACollectiveThatNeedsNoDataOfThis) {
  if (!kCanBeKnown) GTEST_SKIP();
  EXPECT_EQ("", run_single_threads(2, [](const Rank& rank) {
              const Scene s(rank, true);
              if (s.rank() == 0) {
                s.run_in_a_graph([&] { EXPECT_CALL(s.receive(1, 5)); });
              } else {
                const ncclResult_t called = ncclBroadcast(s.data(), s.data(), 1, ncclInt, 1, s.comm(), rank.stream);
                expect_that(called == ncclInvalidUsage, "the call");
              }
              s.must_hear_of({"Recv number 1 from rank 1 (count 5, type int32)", "Broadcast number 1 (count 1,"});
              s.end_failed();
            }));
}

TEST_F(StrictGraphs, ACollectiveInOneIsToldWhoseOtherRankWaitsForAMessageOfThis) {
  if (!kCanBeKnown) GTEST_SKIP();
  EXPECT_EQ("", run_single_threads(2, [](const Rank& rank) {
              const Scene s(rank, true);
              const cudaGraphExec_t graph = s.capture([&] { EXPECT_CALL(s.all_reduce()); });
              if (s.rank() == 0) {
                expect_that(s.receive(1, 5) == ncclInvalidUsage, "the call");
              } else {
                s.launch(graph);
                s.synchronise();
              }
              s.must_hear_of({"AllReduce number 1 (", "Recv number 1 from rank 1 (count 5, type int32)"});
              EXPECT_CALL(cudaGraphExecDestroy(graph));
              s.end_failed();
            }));
}

/// Each waits for the next, some in a graph; the last is in a collective, which it captures or not.
TEST_F(StrictGraphs, ACircleOverSeveralRanksIsTold) {
  if (!kCanBeKnown) GTEST_SKIP();
  for (const bool captured : {false, true}) {
    EXPECT_EQ("", run_single_threads(3, [&](const Rank& rank) {
                const Scene s(rank, true);
                s.run_in_a_graph([&] { EXPECT_CALL(s.all_reduce()); });
                if (s.rank() < 2) {
                  s.run_in_a_graph([&] { EXPECT_CALL(s.receive(s.rank() + 1, 5)); });
                } else if (captured) {
                  s.capture_in_vain([&] { return s.all_reduce(); });
                } else {
                  expect_that(s.all_reduce() == ncclInvalidUsage, "the call");
                }
                s.must_hear_of({captured ? "wait for each other in a circle" : "", "Recv number 1 from rank "});
                s.end_failed();
              }));
  }
}

TEST_F(StrictGraphs, ACircleIsToldBesideARankThatHasCapturedMessages) {
  EXPECT_EQ("", run_ranks({1, 1, 1, 1}, [](Rank& rank) {
              const Scene s(rank, true);
              if (s.rank() == 3) {
                EXPECT_CALL(cudaGraphExecDestroy(s.capture([&] { EXPECT_CALL(s.send(0, 5)); })));
              }
              EXPECT_CALL(s.all_reduce());
              if (s.rank() < 3) {
                expect_that(s.receive((s.rank() + 1) % 3, 5) == ncclInvalidUsage, "the call");
              }
              s.must_hear_of({"wait for each other in a circle: rank 0 ", "Recv number 1 from rank 1 (count 5",
                              "Recv number 1 from rank 2 (count 5", "Recv number 1 from rank 0 (count 5"});
              s.end_failed();
            }));
}

/// Rank 0 waits for the message of a graph while rank 1 waits for it to capture a collective, which it does.
TEST_F(StrictGraphs, AreRightInWhichACollectiveIsCapturedWhileAMessageIsAwaited) {
  const auto body = [](const Rank& rank) {
    const Scene s(rank, true);
    std::vector<cudaGraphExec_t> graphs;
    if (s.rank() == 0) {
      graphs.push_back(s.capture([&] { EXPECT_CALL(s.receive(1, 5)); }));
      s.launch(graphs.front());
      std::this_thread::sleep_for(std::chrono::seconds(2));
    }
    graphs.push_back(s.capture([&] { EXPECT_CALL(s.all_reduce()); }));
    if (s.rank() == 1) EXPECT_CALL(s.send(0, 5));
    s.launch(graphs.back());
    s.synchronise();
    for (const cudaGraphExec_t graph : graphs) EXPECT_CALL(cudaGraphExecDestroy(graph));
    s.end();
  };
  EXPECT_EQ("", run_ranks({1, 1}, body));
  EXPECT_EQ("", run_ranks({2}, body));
  EXPECT_EQ("", run_single_threads(2, body));
}

/// What is waited for stands in a graph that was launched before, behind something else.
TEST_F(StrictGraphs, AreRightOfWhichTheOtherRankIsLateInAStream) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& rank) {
              const Scene s(rank, true);
              const bool sends = s.rank() == 1;
              const cudaGraphExec_t graph = s.capture([&] { EXPECT_CALL(sends ? s.send(0, 5) : s.receive(1, 5)); });
              const auto be_busy = [](void*) { std::this_thread::sleep_for(std::chrono::seconds(2)); };
              if (sends) EXPECT_CALL(cudaLaunchHostFunc(rank.stream, be_busy, nullptr));
              s.launch(graph);
              if (!sends) s.synchronise();
              EXPECT_CALL(s.all_reduce());
              s.synchronise();
              EXPECT_CALL(cudaGraphExecDestroy(graph));
              s.end();
            }));
}

TEST_F(StrictGraphs, AreRightOfWhichTheOtherRankCapturesLater) {
  EXPECT_EQ("", run_single_threads(2, [](const Rank& rank) {
              const Scene s(rank, true);
              EXPECT_CALL(s.all_reduce());
              if (s.rank() == 0) {
                EXPECT_CALL(s.receive(1, 5));
                s.synchronise();
              } else {
                std::this_thread::sleep_for(std::chrono::seconds(2));
                s.run_in_a_graph([&] { EXPECT_CALL(s.send(0, 5)); });
              }
              s.end();
            }));
}

}  // namespace
}  // namespace nitinol::testing
