// Ranks that are gone, by an abort or as their process has ended, when nothing that they called is under way: nothing
// to those who need them no more, and an error of the next call to those who do.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
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
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data_), kCount * sizeof(int)));
  }
  ~Stayer() {
    cudaFree(data_);
    cudaStreamDestroy(stream_);
  }
  Stayer(const Stayer&) = delete;
  Stayer& operator=(const Stayer&) = delete;

  ncclResult_t all_reduce() const { return ncclAllReduce(data_, data_, kCount, ncclInt, ncclSum, comm_, stream_); }
  void synchronize() const { EXPECT_CALL(cudaStreamSynchronize(stream_)); }

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
  ncclComm_t comm_;
  cudaStream_t stream_ = nullptr;
  int* data_ = nullptr;
};

/// For longer than it takes to hear of one that has gone, and to look once more.
void stay_idle() { std::this_thread::sleep_for(std::chrono::seconds(1)); }

class Gone : public ::testing::TestWithParam<WayToGo> {
 public:
  /// All ranks reduce, unless the communicator is to be `fresh`; then one goes, and the others live on.
  void run(const std::function<void(Stayer&)>& live_on, bool fresh = false) const {
    const SharedCount through;
    EXPECT_EQ(GetParam().outcome, run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
                ncclComm_t comm = nullptr;
                use_device_of(process);
                EXPECT_CALL(ncclCommInitRank(&comm, kProcesses, id, process));
                Stayer stayer(comm);
                if (!fresh) must_work(comm, stayer.stream());
                through.meet(kProcesses);
                if (process == kLeaver) return GetParam().go(comm);
                live_on(stayer);
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

/// Either the call hears of it, or, if it came before word of that, the state does.
TEST_P(Gone, EndsTheNextOperationOfTheOthers) {
  run([this](Stayer& stayer) {
    stay_idle();
    if (stayer.all_reduce() == ncclSuccess) {
      stayer.synchronize();
      wait_for_failure(stayer.comm());
    }
    must_tell_of_the_leaver(ncclGetLastError(stayer.comm()));
    expect_that(state_of(stayer.comm()) == ncclRemoteError, "the state");
    expect_that(stayer.all_reduce() == ncclRemoteError, "a later call");
    EXPECT_CALL(ncclCommAbort(stayer.comm()));
  });
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
    static_cast<void>(stayer.all_reduce());  // it may be refused if this rank is late
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

/// Whether such a graph runs cannot be known.
TEST_P(Gone, IsAFailureToRanksWithGraphsThatDoNotMix) {
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);
  run([this](Stayer& stayer) {
    const cudaGraphExec_t graph = stayer.capture();
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
