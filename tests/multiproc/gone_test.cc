// Ranks that are gone, by an abort or as their process has ended, when nothing that they called is under way: nothing
// to those who do not wait for them, whatever else they do, and an error to those who do.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "must_work.h"
#include "nccl.h"
#include "nitinol.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kProcesses = 3;
constexpr int kLeaver = 1;
constexpr int kCount = 1000;

void exits(ncclComm_t) { exit(0); }
void exits_at_once(ncclComm_t) { _exit(0); }
void dies(ncclComm_t) { raise(SIGKILL); }
void aborts(ncclComm_t comm) { EXPECT_CALL(ncclCommAbort(comm)); }

struct WayToGo {
  std::string name;
  void (*go)(ncclComm_t);
  std::string words;
  std::string outcome{};  ///< of its process
};
std::ostream& operator<<(std::ostream& out, const WayToGo& way) { return out << way.name; }

/// A rank that stays when another one has gone.
class Stayer {
 public:
  explicit Stayer(ncclComm_t comm) : comm_(comm) {
    EXPECT_CALL(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data_), 2 * kCount * sizeof(int)));
  }
  ~Stayer() {
    cudaFree(data_);
    cudaStreamDestroy(stream_);
  }
  Stayer(const Stayer&) = delete;
  Stayer& operator=(const Stayer&) = delete;

  ncclResult_t all_reduce() const { return ncclAllReduce(data_, data_, kCount, ncclInt, ncclSum, comm_, stream_); }
  void synchronize() const { EXPECT_CALL(cudaStreamSynchronize(stream_)); }
  /// What is called later, so that all that it needs is reached. In a group where a thread has several ranks.
  void call_all(int rank) const {
    EXPECT_CALL(ncclGroupStart());
    EXPECT_CALL(all_reduce());
    EXPECT_CALL(ncclBroadcast(data_, data_, kCount, ncclInt, kLeaver, comm_, stream_));
    for (int peer = 0; peer < kProcesses; ++peer) {
      if (peer == rank) continue;
      EXPECT_CALL(ncclSend(data_, kCount, ncclInt, peer, comm_, stream_));
      EXPECT_CALL(ncclRecv(data_ + kCount, kCount, ncclInt, peer, comm_, stream_));
    }
    EXPECT_CALL(ncclGroupEnd());
  }
  void send(int value, int peer) const {
    fill(value);
    EXPECT_CALL(ncclSend(data_, kCount, ncclInt, peer, comm_, stream_));
    synchronize();
  }
  void receive(int value, int peer) const {
    fill(-1);
    EXPECT_CALL(ncclRecv(data_, kCount, ncclInt, peer, comm_, stream_));
    must_have(value);
  }
  void receive_in_vain(int peer) const {
    EXPECT_CALL(ncclRecv(data_, kCount, ncclInt, peer, comm_, stream_));
    synchronize();
  }
  /// From the leaver, which has that value.
  void broadcast(int value) const {
    fill(value);
    EXPECT_CALL(ncclBroadcast(data_, data_, kCount, ncclInt, kLeaver, comm_, stream_));
    synchronize();
  }
  void take_broadcast(int value) const {
    fill(-1);
    EXPECT_CALL(ncclBroadcast(data_, data_, kCount, ncclInt, kLeaver, comm_, stream_));
    must_have(value);
  }

  cudaGraphExec_t capture() const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXPECT_CALL(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    EXPECT_CALL(all_reduce());
    EXPECT_CALL(cudaStreamEndCapture(stream_, &graph));
    EXPECT_CALL(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_CALL(cudaGraphDestroy(graph));
    return executable;
  }
  void launch(cudaGraphExec_t executable) const { EXPECT_CALL(cudaGraphLaunch(executable, stream_)); }

  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }

 private:
  void fill(int value) const {
    const std::vector<int> values(kCount, value);
    EXPECT_CALL(cudaMemcpyAsync(data_, values.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, stream_));
    synchronize();
  }
  void must_have(int value) const {
    std::vector<int> values(kCount, -1);
    EXPECT_CALL(cudaMemcpyAsync(values.data(), data_, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream_));
    synchronize();
    expect_that(state_of(comm_) == ncclSuccess, "it has failed");
    for (const int found : values)
      expect_that(found == value, std::to_string(found) + " and not " + std::to_string(value));
  }

  ncclComm_t comm_;
  cudaStream_t stream_ = nullptr;
  int* data_ = nullptr;
};

/// For longer than it takes to hear of one that has gone, and to look once more.
void stay_idle() { std::this_thread::sleep_for(std::chrono::seconds(1)); }

class Gone : public ::testing::TestWithParam<WayToGo> {
 public:
  /// All ranks call something, unless the communicator is to be `fresh`; then one goes, and the others live on.
  void run(const std::function<void(Stayer&)>& live_on, bool fresh = false) const {
    run({[](Stayer&) {}, live_on}, fresh);
  }
  struct Parts {
    std::function<void(Stayer&)> of_leaver;  ///< before it goes, and before the others
    std::function<void(Stayer&)> of_others;
  };
  void run(const Parts& parts, bool fresh = false) const {
    const SharedCount through;
    EXPECT_EQ(GetParam().outcome, run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
                ncclComm_t comm = nullptr;
                use_device_of(process);
                EXPECT_CALL(ncclCommInitRank(&comm, kProcesses, id, process));
                Stayer stayer(comm);
                if (!fresh) stayer.call_all(process);
                stayer.synchronize();
                if (process == kLeaver) parts.of_leaver(stayer);
                through.meet(kProcesses);
                if (process == kLeaver) return GetParam().go(comm);
                parts.of_others(stayer);
              }));
  }
  void must_tell_of_the_leaver(const std::string& sentence) const {
    expect_that(sentence.find("rank 1 (host ") != std::string::npos, sentence);
    expect_that(sentence.find(GetParam().words) != std::string::npos, sentence);
  }
};

INSTANTIATE_TEST_SUITE_P(By, Gone,
                         ::testing::Values(WayToGo{"exit", exits, "exited without ncclCommDestroy or ncclCommAbort"},
                                           WayToGo{"abort", aborts, "aborted its communicator"},
                                           WayToGo{"exit_at_once", exits_at_once, "exited or closed its connection"},
                                           WayToGo{"kill", dies, "exited or closed its connection",
                                                   "process 1 ended by signal 9\n"}),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(Gone, IsNoFailureToRanksThatAreIdle) {
  run([](Stayer& stayer) {
    stay_idle();
    expect_that(state_of(stayer.comm()) == ncclSuccess, "it has failed");
    EXPECT_CALL(ncclCommFinalize(stayer.comm()));
    EXPECT_CALL(ncclCommDestroy(stayer.comm()));
  });
}

TEST_P(Gone, IsNoFailureToRanksThatLeaveRightAway) {
  run([](Stayer& stayer) {
    EXPECT_CALL(ncclCommFinalize(stayer.comm()));
    expect_that(state_of(stayer.comm()) == ncclSuccess, "it has failed");
    EXPECT_CALL(ncclCommDestroy(stayer.comm()));
  });
}

TEST_P(Gone, IsNoFailureToWhoReceivesWhatItHasSent) {
  run({[](Stayer& leaver) {
         leaver.send(17, 0);
         leaver.send(18, 2);
       },
       [](Stayer& stayer) {
         stay_idle();
         int rank = 0;
         EXPECT_CALL(ncclCommUserRank(stayer.comm(), &rank));
         stayer.receive(rank == 0 ? 17 : 18, kLeaver);
         stay_idle();
         EXPECT_CALL(ncclCommDestroy(stayer.comm()));
       }});
}

TEST_P(Gone, IsNoFailureToWhoTakesWhatItHasBroadcast) {
  run({[](Stayer& leaver) { leaver.broadcast(19); },
       [](Stayer& stayer) {
         stay_idle();
         stayer.take_broadcast(19);
         EXPECT_CALL(ncclCommDestroy(stayer.comm()));
       }});
}

/// Who waits for another that is late does not wait for the one that is gone.
TEST_P(Gone, IsNoFailureToOthersThatGoOnAmongThemselves) {
  run([](Stayer& stayer) {
    stay_idle();
    int rank = 0;
    EXPECT_CALL(ncclCommUserRank(stayer.comm(), &rank));
    for (int i = 0; i < 3; ++i) {
      if (rank == 2) stay_idle();
      if (rank == 2) stayer.send(i, 0);
      if (rank == 0) stayer.receive(i, 2);
    }
    if (rank == 0) stayer.send(3, 2);
    if (rank == 2) stay_idle();
    if (rank == 2) stayer.receive(3, 0);
    EXPECT_CALL(ncclCommDestroy(stayer.comm()));
  });
}

/// Word of the second may come before the rank looks again, which had waited for it a moment ago.
TEST_P(Gone, IsNoFailureToWhoReceivesWhatASecondOneHasSentJustBeforeItGoesToo) {
  const SharedCount received;
  run([&](Stayer& stayer) {
    stay_idle();
    int rank = 0;
    EXPECT_CALL(ncclCommUserRank(stayer.comm(), &rank));
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      stayer.send(20, 0);
      EXPECT_CALL(ncclCommAbort(stayer.comm()));
      return received.wait_for(1);
    }
    stayer.receive(20, 2);
    stay_idle();
    expect_that(state_of(stayer.comm()) == ncclSuccess, "it has failed");
    received.add();
    EXPECT_CALL(ncclCommDestroy(stayer.comm()));
  });
}

TEST_P(Gone, EndsTheNextOperationOfTheOthers) {
  run([this](Stayer& stayer) {
    stay_idle();
    EXPECT_CALL(stayer.all_reduce());
    stayer.synchronize();
    wait_for_failure(stayer.comm());
    must_tell_of_the_leaver(ncclGetLastError(stayer.comm()));
    expect_that(state_of(stayer.comm()) == ncclRemoteError, "the state");
    expect_that(stayer.all_reduce() == ncclRemoteError, "a later call");
    EXPECT_CALL(ncclCommAbort(stayer.comm()));
  });
}

/// Where only the failure watch can know.
TEST_P(Gone, EndsTheNextOperationThoughCallsAreNotCompared) {
  setenv("NITINOL_CHECK", "off", 1);
  run([this](Stayer& stayer) {
    stay_idle();
    EXPECT_CALL(stayer.all_reduce());
    stayer.synchronize();
    wait_for_failure(stayer.comm());
    must_tell_of_the_leaver(ncclGetLastError(stayer.comm()));
    EXPECT_CALL(ncclCommAbort(stayer.comm()));
  });
  unsetenv("NITINOL_CHECK");
}

/// Rank 0, by way of which the others' words go, has gone before, and nobody compares calls.
TEST_P(Gone, IsToldToWhoWaitsForItThoughNoWordOfItComes) {
  setenv("NITINOL_CHECK", "off", 1);
  const SharedCount ready;
  const SharedCount gone;
  const SharedCount through;
  EXPECT_EQ(GetParam().outcome, run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              use_device_of(process);
              EXPECT_CALL(ncclCommInitRank(&comm, kProcesses, id, process));
              const Stayer stayer(comm);
              stayer.call_all(process);
              stayer.synchronize();
              ready.meet(kProcesses);
              if (process == 0) {
                EXPECT_CALL(ncclCommAbort(comm));
                gone.add();
                return through.wait_for(1);
              }
              gone.wait_for(1);
              if (process == kLeaver) return GetParam().go(comm);
              stay_idle();
              stayer.receive_in_vain(kLeaver);
              expect_that(wait_for_failure(comm) == ncclRemoteError, "the state");
              through.add();
              EXPECT_CALL(ncclCommAbort(comm));
            }));
  unsetenv("NITINOL_CHECK");
}

/// Which reaches for all ranks, and finds that one is not there.
TEST_P(Gone, EndsTheFirstOperationOfTheOthers) {
  run(
      [this](Stayer& stayer) {
        if (stayer.all_reduce() == ncclSuccess) stayer.synchronize();
        wait_for_failure(stayer.comm());
        must_tell_of_the_leaver(ncclGetLastError(stayer.comm()));
        EXPECT_CALL(ncclCommAbort(stayer.comm()));
      },
      true);
}

/// Such calls wait for all of a GPU's kernels, and others of CUDA may wait for them.
TEST_P(Gone, EndsAnOperationForWhichTheProgramWaitsInCuda) {
  run([this](Stayer& stayer) {
    void* other = nullptr;
    EXPECT_CALL(cudaMalloc(&other, 4096));
    EXPECT_CALL(stayer.all_reduce());
    EXPECT_CALL(cudaFree(other));
    stayer.synchronize();
    wait_for_failure(stayer.comm());
    must_tell_of_the_leaver(ncclGetLastError(stayer.comm()));
    EXPECT_CALL(ncclCommAbort(stayer.comm()));
  });
}

/// Of launches of graphs the library hears nothing.
TEST_P(Gone, EndsAGraphThatIsLaunchedLater) {
  run([this](Stayer& stayer) {
    const cudaGraphExec_t graph = stayer.capture();
    stay_idle();
    stayer.launch(graph);
    stayer.synchronize();
    wait_for_failure(stayer.comm());
    must_tell_of_the_leaver(ncclGetLastError(stayer.comm()));
    EXPECT_CALL(cudaGraphExecDestroy(graph));
    EXPECT_CALL(ncclCommAbort(stayer.comm()));
  });
}

TEST_P(Gone, EndsAGraphThatIsLaunchedLaterAndDoesNotMix) {
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);
  run([this](Stayer& stayer) {
    const cudaGraphExec_t graph = stayer.capture();
    stay_idle();
    expect_that(state_of(stayer.comm()) == ncclSuccess, "it has failed");
    stayer.launch(graph);
    stayer.synchronize();
    wait_for_failure(stayer.comm());
    must_tell_of_the_leaver(ncclGetLastError(stayer.comm()));
    EXPECT_CALL(cudaGraphExecDestroy(graph));
    EXPECT_CALL(ncclCommAbort(stayer.comm()));
  });
  unsetenv("NCCL_GRAPH_MIXING_SUPPORT");
}

TEST_P(Gone, EndsASplitOfTheOthers) {
  run([this](Stayer& stayer) {
    stay_idle();
    ncclComm_t child = nullptr;
    expect_that(ncclCommSplit(stayer.comm(), 0, 0, &child, nullptr) == ncclRemoteError, "the split");
    must_tell_of_the_leaver(ncclGetLastError(stayer.comm()));
    EXPECT_CALL(ncclCommAbort(stayer.comm()));
  });
}

TEST_P(Gone, IsLeftOutByThoseWhoShrink) {
  run([](Stayer& stayer) {
    stay_idle();
    ncclComm_t child = nullptr;
    std::vector<int> excluded = {kLeaver};
    EXPECT_CALL(ncclCommShrink(stayer.comm(), excluded.data(), 1, &child, nullptr, NCCL_SHRINK_DEFAULT));
    int ranks = 0;
    EXPECT_CALL(ncclCommCount(child, &ranks));
    expect_that(ranks == kProcesses - 1, "the ranks that are left");
    EXPECT_CALL(ncclCommDestroy(child));
    EXPECT_CALL(ncclCommDestroy(stayer.comm()));
  });
}

/// Whose memory is the same process's.
TEST(GoneOfTheSameProcess, IsAFailureToWhoWaitsForItAlone) {
  EXPECT_EQ("", run_processes(1, [&](int, const ncclUniqueId&) {
              std::vector<ncclComm_t> comms(kProcesses);
              make_communicators(comms.data(), kProcesses);
              std::vector<std::unique_ptr<Stayer>> ranks;
              for (int rank = 0; rank < kProcesses; ++rank) {
                use_device_of(rank);
                ranks.push_back(std::make_unique<Stayer>(comms[static_cast<size_t>(rank)]));
              }
              EXPECT_CALL(ncclGroupStart());
              for (int rank = 0; rank < kProcesses; ++rank) ranks[static_cast<size_t>(rank)]->call_all(rank);
              EXPECT_CALL(ncclGroupEnd());
              ranks[kLeaver]->broadcast(19);
              ranks[kLeaver]->send(17, 0);
              EXPECT_CALL(ncclCommAbort(comms[kLeaver]));
              stay_idle();
              for (const int rank : {0, 2}) ranks[static_cast<size_t>(rank)]->take_broadcast(19);
              ranks[0]->receive(17, kLeaver);
              ranks[2]->send(18, 0);
              ranks[0]->receive(18, 2);
              for (const int rank : {0, 2}) EXPECT_CALL(ranks[static_cast<size_t>(rank)]->all_reduce());
              for (const int rank : {0, 2}) {
                const ncclComm_t comm = comms[static_cast<size_t>(rank)];
                expect_that(wait_for_failure(comm) == ncclRemoteError, "the state");
                const std::string sentence = ncclGetLastError(comm);
                expect_that(sentence.find("rank 1 (host ") != std::string::npos, sentence);
                ranks[static_cast<size_t>(rank)]->synchronize();
                EXPECT_CALL(ncclCommAbort(comm));
              }
            }));
}

/// Who sets a limit of time is told of ranks that do not come.
TEST_P(Gone, IsToldToWhoLeavesWithALimitOfTime) {
  run([this](Stayer& stayer) {
    EXPECT_CALL(nitinolCommSetTimeout(stayer.comm(), 60));
    expect_that(ncclCommFinalize(stayer.comm()) == ncclRemoteError, "finalize");
    must_tell_of_the_leaver(ncclGetLastError(stayer.comm()));
    EXPECT_CALL(ncclCommDestroy(stayer.comm()));
  });
}

}  // namespace
}  // namespace nitinol::testing
