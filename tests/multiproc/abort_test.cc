// Aborts from another thread, at any moment, whatever the peers do: they end within two seconds, and so does whatever
// the main thread waits in.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "cluster.h"
#include "dumps.h"
#include "must_work.h"
#include "nccl.h"
#include "nitinol.h"
#include "observe.h"
#include "shared.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

using Clock = std::chrono::steady_clock;

void abort_in_time(ncclComm_t comm) {
  const auto begin = Clock::now();
  EXPECT_CALL(ncclCommAbort(comm));
  expect_that(Clock::now() - begin < kAbortTime, "the abort took too long");
}

/// Process 0 runs `body`; process 1 is a member too, and does nothing until process 0 is through.
std::string with_an_idle_peer(const std::function<void(ncclComm_t comm, cudaStream_t stream, float* data)>& body) {
  const SharedCount through;
  return run_processes(2, [&](int process, const ncclUniqueId& id) {
    ncclComm_t comm = nullptr;
    EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
    if (process == 1) {
      through.wait_for(1);
      return EXPECT_CALL(ncclCommAbort(comm));
    }
    cudaStream_t stream = nullptr;
    float* data = nullptr;
    EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
    body(comm, stream, data);
    through.add();
    EXPECT_CALL(cudaFree(data));
    EXPECT_CALL(cudaStreamDestroy(stream));
  });
}

TEST(Abort, FreesAThreadThatWaitsForItsStream) {
  EXPECT_EQ("", with_an_idle_peer([](ncclComm_t comm, cudaStream_t stream, float* data) {
              EXPECT_CALL(ncclAllReduce(data, data, 100, ncclFloat, ncclSum, comm, stream));
              std::atomic<bool> waiting{false};
              std::thread main([&] {
                waiting = true;
                EXPECT_CALL(cudaStreamSynchronize(stream));
              });
              while (!waiting) std::this_thread::yield();
              abort_in_time(comm);
              main.join();
            }));
}

TEST(Abort, FreesAThreadThatFinalizes) {
  EXPECT_EQ("", with_an_idle_peer([](ncclComm_t comm, cudaStream_t, float*) {
              std::atomic<bool> inside{false};
              ncclResult_t finalized = ncclSuccess;
              EXPECT_CALL(nitinolCommSetTimeout(comm, kLongTime));
              std::thread main([&] {
                inside = true;
                finalized = ncclCommFinalize(comm);
              });
              while (!inside) std::this_thread::yield();
              std::this_thread::sleep_for(std::chrono::milliseconds(20));  // most likely inside by now; both is fine
              abort_in_time(comm);
              main.join();
              expect_that(finalized != ncclSuccess, "finalized without the peer");
            }));
}

TEST(Abort, EndsAnInitThatPeersNeverJoin) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              ncclComm_t comm = nullptr;
              const ncclResult_t started = ncclCommInitRankConfig(&comm, 3, id, 1, &config);
              expect_that(started == ncclInProgress && comm != nullptr, "init");
              int count = 0;
              expect_that(ncclCommCount(comm, &count) == ncclInProgress, "count while initialising");
              ncclComm_t child = nullptr;
              expect_that(ncclCommSplit(comm, 0, 0, &child, nullptr) == ncclInvalidArgument,
                          "split while initialising");
              abort_in_time(comm);
            }));
}

TEST(Abort, EndsANonBlockingSplitAndItsChild) {
  const SharedCount through;
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              ncclComm_t comm = nullptr;
              ncclResult_t state = ncclInProgress;
              static_cast<void>(ncclCommInitRankConfig(&comm, 2, id, process, &config));
              while (state == ncclInProgress) EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
              if (process == 1) {
                through.wait_for(1);
                return abort_in_time(comm);
              }
              ncclComm_t child = nullptr;
              expect_that(ncclCommSplit(comm, 0, 0, &child, nullptr) == ncclInProgress, "split");
              float number = 0;
              expect_that(ncclAllReduce(&number, &number, 1, ncclFloat, ncclSum, comm, nullptr) == ncclInvalidArgument,
                          "busy");
              abort_in_time(comm);
              abort_in_time(child);
              through.add();
            }));
}

TEST(Abort, LeavesGraphsThatCanBeLaunchedAndDestroyed) {
  EXPECT_EQ("", with_an_idle_peer([](ncclComm_t comm, cudaStream_t stream, float* data) {
              cudaGraph_t graph = nullptr;
              cudaGraphExec_t executable = nullptr;
              EXPECT_CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
              EXPECT_CALL(ncclAllReduce(data, data, 100, ncclFloat, ncclSum, comm, stream));
              EXPECT_CALL(cudaStreamEndCapture(stream, &graph));
              EXPECT_CALL(cudaGraphInstantiate(&executable, graph, 0));
              for (int i = 0; i < 3; ++i) EXPECT_CALL(cudaGraphLaunch(executable, stream));
              abort_in_time(comm);
              EXPECT_CALL(cudaStreamSynchronize(stream));
              EXPECT_CALL(cudaGraphLaunch(executable, stream));  // its results are undefined; it ends
              EXPECT_CALL(cudaStreamSynchronize(stream));
              EXPECT_CALL(cudaGraphExecDestroy(executable));
              EXPECT_CALL(cudaGraphDestroy(graph));
            }));
}

TEST(Abort, WithAStoppedPeer) {
  EXPECT_EQ("process 1 ended by signal 9\n", run_processes(2, [](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(ncclAllReduce(data, data, 100, ncclFloat, ncclSum, comm, nullptr));
              EXPECT_CALL(cudaDeviceSynchronize());
              if (process == 1) {
                const pid_t self = getpid();
                if (fork() == 0) {  // ends the stopped process when the other is through
                  sleep(6);
                  kill(self, SIGKILL);
                  _exit(0);
                }
                raise(SIGSTOP);
              }
              EXPECT_CALL(ncclAllReduce(data, data, 100, ncclFloat, ncclSum, comm, nullptr));
              abort_in_time(comm);
              EXPECT_CALL(cudaDeviceSynchronize());
              EXPECT_CALL(cudaFree(data));
            }));
}

struct FirstUse {
  Shared<std::atomic<pid_t>> stopped;  ///< rank 1, which stops right away
  SharedCount through;                 ///< and dies once the others are through
  TemporaryFolder folder;

  void stop() const {
    if (fork() == 0) {
      through.wait_for(2);
      kill(getppid(), SIGKILL);
      _exit(0);
    }
    *stopped = getpid();
    raise(SIGSTOP);
  }
  void await_stop() const {
    while (*stopped == 0 || !is_stopped(*stopped)) usleep(1000);
  }
  void abort(ncclComm_t comm) const {
    float* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
    const ncclResult_t begun = ncclAllReduce(data, data, 100, ncclFloat, ncclSum, comm, nullptr);
    expect_that(begun == ncclInProgress, "it does not wait for the rank that has stopped");
    dump_until(comm, folder.file("dump.json"), is_setting_up);
    abort_in_time(comm);
    through.add();
    EXPECT_CALL(cudaFree(data));
  }
  void hear_of(ncclComm_t comm) const {
    expect_that(wait_for_failure(comm) == ncclRemoteError, "the code");
    const std::string sentence = ncclGetLastError(comm);
    EXPECT_CALL(ncclCommAbort(comm));
    through.add();
    expect_that(sentence.starts_with("rank 0 (host "), sentence);
    expect_that(sentence.find(") aborted its communicator: in AllReduce (") != std::string::npos, sentence);
    expect_that(sentence.find("cannot reach the memory of rank 1 (host ") != std::string::npos, sentence);
  }
};

TEST(Abort, InTheFirstUseIsWhatTheOthersAreTold) {
  const FirstUse use;
  EXPECT_EQ("process 1 ended by signal 9\n", run_processes(3, [&](int process, const ncclUniqueId& id) {
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              ncclComm_t comm = nullptr;
              const ncclResult_t begun = ncclCommInitRankConfig(&comm, 3, id, process, &config);
              EXPECT_CALL(settled(begun, comm));
              if (process == 1) use.stop();
              use.await_stop();
              process == 0 ? use.abort(comm) : use.hear_of(comm);
            }));
}

/// The call may not have got as far as to the communicator then.
TEST(Abort, RightBehindACallIsNoInvalidUsageOfTheOthers) {
  const SharedCount made;
  const SharedCount aborted;
  EXPECT_EQ("", run_ranks({1, 1}, [&](Rank& self) {
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              for (int round = 0; round < 30; ++round) {
                ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                config.blocking = 0;
                ncclComm_t comm = nullptr;
                EXPECT_CALL(settled(ncclCommSplit(self.comm, 0, self.rank, &comm, &config), self.comm));
                EXPECT_CALL(settled(ncclInProgress, comm));
                made.add();
                made.wait_for(2 * (round + 1));
                const ncclResult_t called = ncclAllReduce(data, data, 100, ncclFloat, ncclSum, comm, self.stream);
                if (self.rank == 0) expect_that(called == ncclInProgress, "the call " + std::to_string(called));
                ncclResult_t state = self.rank == 1 ? settled(called, comm) : ncclSuccess;
                // It may have come through before the abort.
                const auto is_through = [&] {
                  return aborted.value() > round && cudaStreamQuery(self.stream) == cudaSuccess;
                };
                while (self.rank == 1 && state == ncclSuccess && !is_through()) state = state_of(comm);
                expect_that(state == ncclSuccess || state == ncclRemoteError, std::to_string(state));
                EXPECT_CALL(ncclCommAbort(comm));
                if (self.rank == 0) aborted.add();
              }
              EXPECT_CALL(cudaFree(data));
            }));
}

/// Calls all kinds of functions until one says that it is over.
void use_until_aborted(ncclComm_t comm, cudaStream_t stream, float* data) {
  for (int i = 0; i < 100'000; ++i) {
    ncclResult_t result = ncclSuccess;
    switch (i % 4) {
      case 0: result = ncclAllReduce(data, data, 64, ncclFloat, ncclMax, comm, stream); break;
      case 1: result = ncclBroadcast(data, data, 8, ncclFloat, 0, comm, stream); break;
      case 2: {
        int count = 0;
        result = ncclCommCount(comm, &count);
        break;
      }
      case 3: static_cast<void>(ncclGetLastError(comm)); break;
    }
    if (i % 16 == 0) static_cast<void>(cudaStreamSynchronize(stream));
    if (result != ncclSuccess) return;
  }
}

TEST(Abort, MayRaceWithEverything) {
  constexpr int kRounds = 25;
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              std::mt19937 random(11);
              for (int round = 0; round < kRounds; ++round) {
                constexpr int kRanks = 3;
                ncclComm_t comms[kRanks];
                make_communicators(comms, kRanks);
                std::vector<std::thread> threads;
                for (int rank = 0; rank < kRanks; ++rank) {
                  threads.emplace_back([&, rank] {
                    use_device_of(rank);
                    cudaStream_t stream = nullptr;
                    float* data = nullptr;
                    EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
                    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
                    use_until_aborted(comms[rank], stream, data);
                    EXPECT_CALL(cudaStreamSynchronize(stream));
                    EXPECT_CALL(cudaFree(data));
                    EXPECT_CALL(cudaStreamDestroy(stream));
                  });
                }
                std::thread watchdog([&] {
                  for (int i = 0; i < 100; ++i) {
                    ncclResult_t state = ncclSuccess;
                    static_cast<void>(ncclCommGetAsyncError(comms[i % kRanks], &state));
                  }
                });
                std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
                for (ncclComm_t comm : comms) abort_in_time(comm);
                watchdog.join();
                for (std::thread& thread : threads) thread.join();
              }
            }));
}

}  // namespace
}  // namespace nitinol::testing
