// Leaving and shrinking when nobody has set a deadline: with the default patience of minutes, what can be known is not
// waited for.
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

#include "cluster.h"
#include "device_memory.h"
#include "must_work.h"
#include "nccl.h"
#include "nitinol.h"
#include "shared_count.h"
#include "shrink_attempt.h"

namespace nitinol::testing {
namespace {

constexpr int kProcesses = 4;
// Far less than NITINOL_INIT_TIMEOUT, far more than it takes.
constexpr std::chrono::seconds kInTime{40};

/// Ends this process, which is about to be stopped, once the others are done.
void be_killed_after(const SharedCount& done, int others) {
  const pid_t self = getpid();
  if (fork() != 0) return;
  done.wait_for(others);
  kill(self, SIGKILL);
  _exit(0);
}

ncclComm_t join_and_reduce(int process, const ncclUniqueId& id) {
  ncclComm_t comm = nullptr;
  float* data = nullptr;
  EXPECT_CALL(ncclCommInitRank(&comm, kProcesses, id, process));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
  EXPECT_CALL(ncclAllReduce(data, data, 10, ncclFloat, ncclSum, comm, nullptr));
  EXPECT_CALL(cudaDeviceSynchronize());
  EXPECT_CALL(cudaFree(data));
  return comm;
}

std::string killed(int process) { return "process " + std::to_string(process) + " ended by signal 9\n"; }

/// With or without an operation that waits for the victim.
void destroy_beside_a_stopped_rank(int victim, bool with_operation) {
  const SharedCount done;
  EXPECT_EQ(killed(victim), run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              ncclComm_t comm = join_and_reduce(process, id);
              if (process == victim) {
                be_killed_after(done, kProcesses - 1);
                raise(SIGSTOP);
              }
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              if (with_operation) {
                EXPECT_CALL(ncclAllReduce(data, data, 9, ncclFloat, ncclSum, comm, nullptr));
              }
              const auto begin = std::chrono::steady_clock::now();
              EXPECT_CALL(ncclCommDestroy(comm));
              EXPECT_CALL(cudaDeviceSynchronize());
              EXPECT_CALL(cudaFree(data));
              expect_that(std::chrono::steady_clock::now() - begin < kInTime, "it took too long");
              done.add();
            }));
}

TEST(Leaving, DestroyDoesNotWaitForAStoppedRank) {
  for (const int victim : {0, 3}) destroy_beside_a_stopped_rank(victim, false);
}

TEST(Leaving, DestroyEndsOperationsThatWaitForAStoppedRank) { destroy_beside_a_stopped_rank(2, true); }

/// Rank 3 dies, and `victim`, which is to take part, does so while the others shrink: by `end`.
std::string shrink_while(int victim, const std::function<void(const SharedCount& done)>& end, const char* fate) {
  const SharedCount ready;
  const SharedCount done;
  return run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
    ncclComm_t comm = join_and_reduce(process, id);
    if (process == 3) raise(SIGKILL);
    wait_in_vain(comm);
    if (process == victim) {
      ready.wait_for(2);
      end(done);
    }
    ready.add();
    const ShrinkAttempt attempt(comm, 3);
    done.add();
    attempt.must_have_failed(kInTime, {"rank " + std::to_string(victim) + " (host", fate});
    EXPECT_CALL(ncclCommAbort(comm));
  });
}

void die_soon(const SharedCount&) {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  raise(SIGKILL);
}

TEST(Leaving, ShrinkHearsOfTheDeathOfItsLeader) { EXPECT_EQ(killed(0) + killed(3), shrink_while(0, die_soon, "dead")); }

TEST(Leaving, ShrinkHearsOfTheDeathOfAMember) { EXPECT_EQ(killed(2) + killed(3), shrink_while(2, die_soon, "dead")); }

TEST(Leaving, ShrinkNamesAStoppedLeaderWhenTheTimeIsOver) {
  setenv("NITINOL_INIT_TIMEOUT", "6", 1);  // also for those who join, however slow the machine is
  EXPECT_EQ(killed(0) + killed(3), shrink_while(
                                       0,
                                       [](const SharedCount& done) {
                                         be_killed_after(done, 2);
                                         raise(SIGSTOP);
                                       },
                                       "stopped (SIGSTOP"));
  unsetenv("NITINOL_INIT_TIMEOUT");
}

using Calls = std::function<void(const Rank& self, ncclComm_t comm, int* data)>;

/// Three ranks make calls on a communicator of their own and finalize it. `words`: which of them hear what, and
/// those who hear nothing.
std::string finalize_within(double limit, const std::vector<int>& processes, const Calls& calls,
                            const std::vector<std::string>& words) {
  using Clock = std::chrono::steady_clock;
  const SharedCount ready;
  const SharedCount late;
  return run_ranks(processes, [&](Rank& self) {
    ncclComm_t comm = nullptr;
    int* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
    EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
    EXPECT_CALL(nitinolCommSetTimeout(comm, limit));
    calls(self, comm, data);
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    ready.meet(self.ranks);
    const auto begin = Clock::now();
    const ncclResult_t left = ncclCommFinalize(comm);
    // Without a limit it goes alone then.
    if (limit == 0 && Clock::now() - begin >= std::chrono::seconds(1)) late.add();
    ncclResult_t state = left;
    const std::string& expected = words[static_cast<size_t>(self.rank)];
    // Of ranks of one process only the last to come is told by the call; the others see it in their state.
    const auto deadline = Clock::now() + kInTime;
    while (!expected.empty() && state == ncclSuccess && late.value() == 0 && Clock::now() < deadline) {
      EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
    }
    const std::string sentence = ncclGetLastError(comm);
    const bool heard = state == ncclInvalidUsage && sentence.find(expected) != std::string::npos;
    const bool heard_nothing = state == ncclSuccess && late.value() != 0;
    if (expected.empty() ? left != ncclSuccess : !heard && !heard_nothing) {
      throw std::runtime_error(std::to_string(left) + ", " + std::to_string(state) + ": " + sentence);
    }
    EXPECT_CALL(ncclCommDestroy(comm));
    EXPECT_CALL(cudaFree(data));
  });
}

std::string finalize_after(const std::vector<int>& processes, const Calls& calls,
                           const std::vector<std::string>& words) {
  return finalize_within(kLongTime, processes, calls, words) + finalize_within(0, processes, calls, words);
}

TEST(Leaving, FinalizeTellsBothEndsOfAMessageThatNobodyReceived) {
  bool per_thread = false;
  const Calls one_too_many = [&](const Rank& self, ncclComm_t comm, int* data) {
    for (int i = 0; i < 2 && self.rank == 0; ++i) EXPECT_CALL(ncclSend(data, 7, ncclInt, 1, comm, self.stream));
    const cudaStream_t stream = per_thread ? cudaStreamPerThread : self.stream;
    if (self.rank == 1) EXPECT_CALL(ncclRecv(data, 7, ncclInt, 0, comm, stream));
    if (self.rank == 0) EXPECT_CALL(ncclSend(data, 9, ncclFloat16, 1, comm, self.stream));
  };
  const std::string received =
      ", which has received 1; nobody has received Send number 2 to rank 1 (count 7, type int32)";
  for (const std::vector<int>& processes : {std::vector<int>{1, 1, 1}, {3}}) {
    EXPECT_EQ("", finalize_after(processes, one_too_many, {received, received, ""}));
    per_thread = !per_thread;
  }
  const Calls only_sent = [](const Rank& self, ncclComm_t comm, int* data) {
    if (self.rank == 2) EXPECT_CALL(ncclSend(data, 3, ncclUint8, 0, comm, self.stream));
  };
  const std::string none = "which has received 0; nobody has received Send number 1 to rank 0 (count 3, type uint8)";
  EXPECT_EQ("", finalize_after({1, 1, 1}, only_sent, {none, "", none}));
  EXPECT_EQ("", finalize_after({3}, only_sent, {none, "", none}));
}

TEST(Leaving, FinalizeTakesMessagesOfNoBytesAndThoseOfGraphsAsTheyAre) {
  const Calls empty = [](const Rank& self, ncclComm_t comm, int* data) {
    if (self.rank == 0) EXPECT_CALL(ncclSend(data, 0, ncclInt, 1, comm, self.stream));
  };
  EXPECT_EQ("", finalize_after({1, 1, 1}, empty, {"", "", ""}));
  // All are received, in another way than they were sent.
  const Calls in_graphs = [](const Rank& self, ncclComm_t comm, int* data) {
    for (int i = 0; i < 3 && self.rank == 0; ++i) EXPECT_CALL(ncclSend(data, 5, ncclInt, 1, comm, self.stream));
    if (self.rank != 1) return;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXPECT_CALL(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_CALL(ncclRecv(data, 5, ncclInt, 0, comm, self.stream));
    EXPECT_CALL(cudaStreamEndCapture(self.stream, &graph));
    EXPECT_CALL(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 3; ++i) EXPECT_CALL(cudaGraphLaunch(executable, self.stream));
    EXPECT_CALL(cudaGraphExecDestroy(executable));
    EXPECT_CALL(cudaGraphDestroy(graph));
  };
  EXPECT_EQ("", finalize_after({1, 1, 1}, in_graphs, {"", "", ""}));
}

TEST(Leaving, FinalizeTellsOfCollectivesThatOthersLeftOut) {
  const Calls extra_broadcast = [](const Rank& self, ncclComm_t comm, int* data) {
    EXPECT_CALL(ncclAllReduce(data, data, 7, ncclInt, ncclSum, comm, self.stream));
    if (self.rank == 0) EXPECT_CALL(ncclBroadcast(data, data, 7, ncclInt, 0, comm, self.stream));
  };
  const std::string broadcast = "rank 0 calls Broadcast number 2 (count 7, type int32, root 0), but rank ";
  // Rank 0 has never reached anybody.
  const Calls extra_gather = [](const Rank& self, ncclComm_t comm, int* data) {
    if (self.rank != 0) EXPECT_CALL(ncclGather(data, data, 7, ncclInt, 0, comm, self.stream));
  };
  const std::string gather = " calls Gather number 1 (count 7, type int32, root 0), but rank 0 ";
  const Calls extra_reduce = [](const Rank& self, ncclComm_t comm, int* data) {
    EXPECT_CALL(ncclAllReduce(data, data, 0, ncclInt, ncclSum, comm, self.stream));
    if (self.rank == 2) EXPECT_CALL(ncclReduce(data, data, 7, ncclInt, ncclSum, 1, comm, self.stream));
    if (self.rank == 2) EXPECT_CALL(ncclAllReduce(data, data, 0, ncclInt, ncclSum, comm, self.stream));
  };
  const std::string reduce = "rank 2 calls Reduce number ";
  for (const std::vector<int>& processes : {std::vector<int>{1, 1, 1}, {3}, {2, 1}}) {
    EXPECT_EQ("", finalize_after(processes, extra_broadcast, {broadcast, broadcast, broadcast}));
    EXPECT_EQ("", finalize_after(processes, extra_gather, {"rank 1" + gather, "rank 1" + gather, "rank 2" + gather}));
    EXPECT_EQ("", finalize_after(processes, extra_reduce, {reduce, reduce, reduce}));
  }
}

TEST(Leaving, FinalizeTakesCollectivesOfNoElementsAndThoseOfGraphsAsTheyAre) {
  const Calls empty = [](const Rank& self, ncclComm_t comm, int* data) {
    EXPECT_CALL(ncclAllReduce(data, data, 7, ncclInt, ncclSum, comm, self.stream));
    for (int i = 0; i < 2 && self.rank == 0; ++i) {
      EXPECT_CALL(ncclBroadcast(data, data, 0, ncclInt, 0, comm, self.stream));
    }
  };
  const Calls captured = [](const Rank& self, ncclComm_t comm, int* data) {
    cudaGraph_t graph = nullptr;
    EXPECT_CALL(ncclAllReduce(data, data, 7, ncclInt, ncclSum, comm, self.stream));
    if (self.rank == 0) EXPECT_CALL(ncclBroadcast(data, data, 7, ncclInt, 0, comm, self.stream));
    EXPECT_CALL(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_CALL(ncclBroadcast(data, data, 7, ncclInt, 0, comm, self.stream));
    EXPECT_CALL(cudaStreamEndCapture(self.stream, &graph));
    EXPECT_CALL(cudaGraphDestroy(graph));
  };
  for (const std::vector<int>& processes : {std::vector<int>{1, 1, 1}, {3}}) {
    EXPECT_EQ("", finalize_after(processes, empty, {"", "", ""}));
    EXPECT_EQ("", finalize_after(processes, captured, {"", "", ""}));
  }
}

/// Each of a process's ranks, of which the last to come waits for all.
TEST(Leaving, FinalizeReturnsTheErrorOfTheOwnRankAlone) {
  for (const int last : {0, 1, 2}) {
    std::atomic<int> gone{0};
    EXPECT_EQ("", run_ranks({3}, [&](Rank& self) {
                ncclComm_t comm = nullptr;
                int* data = nullptr;
                EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
                EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
                if (self.rank == 0) EXPECT_CALL(ncclSend(data, 7, ncclInt, 1, comm, self.stream));
                while (self.rank == last && gone < 2) std::this_thread::yield();
                const ncclResult_t left = ncclCommFinalize(comm);
                gone.fetch_add(1);
                while (gone < 3) std::this_thread::yield();
                const ncclResult_t own = self.rank == 2 ? ncclSuccess : ncclInvalidUsage;
                expect_that(left == (self.rank == last ? own : ncclSuccess), "returned " + std::to_string(left));
                expect_that(state_of(comm) == own, "in state " + std::to_string(state_of(comm)));
                EXPECT_CALL(ncclCommDestroy(comm));
                EXPECT_CALL(cudaFree(data));
              }));
  }
}

/// A process of which one rank has come, and returned at once, is waited for because of the other.
TEST(Leaving, FinalizeNamesTheRankForWhichOthersOfItsProcessWait) {
  const SharedCount come;
  EXPECT_EQ("", run_ranks({2, 1}, [&](Rank& self) {
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              EXPECT_CALL(nitinolCommSetTimeout(comm, 1));
              if (self.rank == 0) {
                EXPECT_CALL(ncclCommFinalize(comm));
                come.add();
              }
              come.wait_for(1);
              if (self.rank == 2) expect_that(ncclCommFinalize(comm) == ncclRemoteError, "finalize has not failed");
              expect_that(wait_for_failure(comm) == ncclRemoteError, "no remote error");
              const std::string sentence = ncclGetLastError(comm);
              expect_that(sentence.find("it has come, but waits for rank 1 (host") != std::string::npos, sentence);
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

/// One that has come waits for the others of its process, which come to something else: nobody is to wait for it.
void split_beside_a_rank_that_leaves(const std::vector<int>& ranks_in_process, int leaver,
                                     ncclResult_t (*leave)(ncclComm_t)) {
  EXPECT_EQ("", run_ranks(ranks_in_process, [&](Rank& self) {
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              if (self.rank == leaver) {
                const ncclResult_t left = leave(comm);
                if (leave == ncclCommFinalize) {  // before which the others may have found out
                  expect_that(left == ncclSuccess || left == ncclInvalidUsage, ncclGetLastError(comm));
                  EXPECT_CALL(ncclCommDestroy(comm));
                } else {
                  EXPECT_CALL(left);
                }
                return;
              }
              ncclComm_t half = nullptr;
              const auto begin = std::chrono::steady_clock::now();
              expect_refusal(ncclCommSplit(comm, self.rank % 2, 0, &half, nullptr), ncclInvalidUsage,
                             "in ncclCommFinalize or ncclCommDestroy");
              expect_that(std::chrono::steady_clock::now() - begin < kInTime, "it took too long");
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Leaving, IsNotWaitedForByRanksOfTheSameProcessThatSplit) {
  for (const int leaver : {0, 1, 2}) split_beside_a_rank_that_leaves({3}, leaver, ncclCommDestroy);
  split_beside_a_rank_that_leaves({3}, 1, ncclCommFinalize);
}

TEST(Leaving, IsNotWaitedForByOtherProcessesThatSplit) {
  for (const int leaver : {0, 1, 2}) split_beside_a_rank_that_leaves({2, 2}, leaver, ncclCommDestroy);
}

/// What finalize waits for fails, which it finds out before it waits for others.
TEST(Leaving, FinalizeReturnsTheErrorOfAnOperationThatWasStillRunning) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              ncclComm_t comm = nullptr;
              int* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              EXPECT_CALL(nitinolCommSetTimeout(comm, kLongTime));
              if (self.rank == 0) EXPECT_CALL(ncclAllReduce(data, data, 7, ncclInt, ncclSum, comm, self.stream));
              const ncclResult_t left = ncclCommFinalize(comm);
              const std::string sentence = ncclGetLastError(comm);
              expect_that(left == ncclInvalidUsage, "returned " + std::to_string(left));
              expect_that(sentence.find("rank 0 calls AllReduce number 1") != std::string::npos, sentence);
              EXPECT_CALL(ncclCommDestroy(comm));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(cudaFree(data));
            }));
}

/// The last of the process's ranks waits for the other process on behalf of both, and one is destroyed meanwhile.
TEST(Leaving, DestroyAfterFinalizeDisturbsNobodyWhoIsStillLeaving) {
  EXPECT_EQ("", run_ranks({2, 1}, [](Rank& self) {
              for (int round = 0; round < 20; ++round) {
                ncclComm_t comm = nullptr;
                EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
                std::this_thread::sleep_for(std::chrono::milliseconds(4 * self.rank));
                EXPECT_CALL(ncclCommFinalize(comm));
                if (self.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(6));
                EXPECT_CALL(ncclCommDestroy(comm));
              }
            }));
}

TEST(Leaving, FinalizeWaitsForMessagesThatAreOnTheirWay) {
  constexpr size_t kRoom = size_t{1} << 22;
  const auto rounds = [](Rank& self) {
    char* out = nullptr;
    char* in = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&out), kRoom));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&in), kRoom));
    std::mt19937 random(3);  // the same on all ranks
    for (int round = 0; round < 12; ++round) {
      ncclComm_t comm = nullptr;
      EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
      for (int call = 0; call < 3; ++call) {
        EXPECT_CALL(ncclGroupStart());
        for (int pair = 0; pair < self.ranks * self.ranks; ++pair) {
          const size_t bytes = random() % 3 == 0 ? 0 : random() % (kRoom >> (random() % 16));
          const int from = pair / self.ranks;
          const int to = pair % self.ranks;
          if (from == self.rank) EXPECT_CALL(ncclSend(out, bytes, ncclUint8, to, comm, self.stream));
          if (to == self.rank) EXPECT_CALL(ncclRecv(in, bytes, ncclUint8, from, comm, self.stream));
        }
        EXPECT_CALL(ncclGroupEnd());
      }
      EXPECT_CALL(ncclCommFinalize(comm));
      EXPECT_CALL(ncclCommDestroy(comm));
    }
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    EXPECT_CALL(cudaFree(in));
    EXPECT_CALL(cudaFree(out));
  };
  for (const std::vector<int>& processes : {std::vector<int>{1, 1, 1}, {2, 1}}) {
    EXPECT_EQ("", run_ranks(processes, rounds));
  }
}

void use(const Rank& self, ncclComm_t comm) {
  int* data = nullptr;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(int)));
  EXPECT_CALL(settled(ncclAllReduce(data, data, 1, ncclInt, ncclSum, comm, self.stream), comm));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  EXPECT_CALL(cudaFree(data));
}

/// As a program does that keeps them in a table ordered by chance.
TEST(Leaving, OfTwoCommunicatorsInOppositeOrdersStandsNotStill) {
  for (const int blocking : {1, 0}) {
    EXPECT_EQ("", run_ranks({1, 1, 1}, [&](Rank& self) {
                std::vector<ncclComm_t> comms(2);
                ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                config.blocking = blocking;
                for (ncclComm_t& comm : comms) {
                  EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, &config));
                  EXPECT_CALL(settled(ncclInProgress, comm));
                  use(self, comm);
                }
                if (self.rank % 2 == 1) std::swap(comms[0], comms[1]);
                const auto begin = std::chrono::steady_clock::now();
                for (const ncclComm_t comm : comms) {
                  EXPECT_CALL(settled(ncclCommFinalize(comm), comm));
                  EXPECT_CALL(ncclCommDestroy(comm));
                }
                expect_that(std::chrono::steady_clock::now() - begin < kInTime, "it took too long");
              }));
  }
}

/// One that writes a checkpoint, say, while the others' processes end.
TEST(Leaving, OfOthersLongBeforeIsNoFailure) {
  const SharedCount gone;
  EXPECT_EQ("", run_ranks({1, 1, 1, 1}, [&](Rank& self) {
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              use(self, comm);
              if (self.rank == 1) {
                gone.wait_for(3);
                expect_that(state_of(comm) == ncclSuccess, ncclGetLastError(comm));
              }
              EXPECT_CALL(ncclCommFinalize(comm));
              EXPECT_CALL(ncclCommDestroy(comm));
              gone.add();
            }));
}

TEST(Leaving, WaitsForARankThatHasNotTakenWhatItWasSent) {
  const SharedCount left;
  EXPECT_EQ("", run_ranks({1, 1}, [&](Rank& self) {
              ncclComm_t comm = nullptr;
              int* data = nullptr;
              const int sent = 77;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(int)));
              EXPECT_CALL(nitinol::copy_to_device(data, &sent, sizeof(int)));
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              if (self.rank == 0) {
                EXPECT_CALL(ncclSend(data, 1, ncclInt, 1, comm, self.stream));
                EXPECT_CALL(ncclCommFinalize(comm));
                left.add();
              } else {
                std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // longer than a rank waits for others
                expect_that(left.value() == 0, "rank 0 has left");
                EXPECT_CALL(nitinol::set_on_device(data, 0, sizeof(int)));
                EXPECT_CALL(ncclRecv(data, 1, ncclInt, 0, comm, self.stream));
                EXPECT_CALL(cudaStreamSynchronize(self.stream));
                int got = 0;
                EXPECT_CALL(cudaMemcpy(&got, data, sizeof(int), cudaMemcpyDeviceToHost));
                expect_that(got == sent, "another message");
                EXPECT_CALL(ncclCommFinalize(comm));
              }
              EXPECT_CALL(ncclCommDestroy(comm));
              EXPECT_CALL(cudaFree(data));
            }));
}

TEST(Leaving, AMessageInVainIsNothingToThoseWhoRevoke) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              ncclComm_t comm = nullptr;
              int* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              if (self.rank == 0) EXPECT_CALL(ncclSend(data, 7, ncclInt, 1, comm, self.stream));
              EXPECT_CALL(ncclAllReduce(data, data, 1, ncclInt, ncclSum, self.comm, self.stream));  // it is sent
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
              EXPECT_CALL(ncclCommDestroy(comm));
              EXPECT_CALL(cudaFree(data));
            }));
}

}  // namespace
}  // namespace nitinol::testing
