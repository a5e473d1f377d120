// Shrinking and revoking: what is left of a communicator after some of its ranks are gone, and in which order things
// may be done.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "cluster.h"
#include "device_memory.h"
#include "nccl.h"
#include "shared_count.h"
#include "shrink_attempt.h"

namespace nitinol::testing {
namespace {

/// Sums rank + 1 over the communicator with so many ranks, of which this one is to be `rank`.
void must_work(ncclComm_t comm, int rank, int ranks, cudaStream_t stream) {
  expect_place(comm, rank, ranks);
  constexpr int kCount = 5000;
  std::vector<int> values(kCount, rank + 1);
  int* data = nullptr;
  // In the stream's order: cudaFree would wait for kernels of other ranks on the same GPU, and so do calls of other
  // threads while this one waits in a copy to pageable memory.
  EXPECT_CALL(cudaMallocAsync(reinterpret_cast<void**>(&data), kCount * sizeof(int), stream));
  EXPECT_CALL(cudaMemcpyAsync(data, values.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, stream));
  EXPECT_CALL(settled(ncclAllReduce(data, data, kCount, ncclInt, ncclSum, comm, stream), comm));
  EXPECT_CALL(cudaStreamSynchronize(stream));
  EXPECT_CALL(cudaMemcpyAsync(values.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream));
  EXPECT_CALL(cudaFreeAsync(data, stream));
  EXPECT_CALL(cudaStreamSynchronize(stream));
  for (const int value : values) expect_that(value == ranks * (ranks + 1) / 2, "sum is " + std::to_string(value));
}

ncclResult_t wait_for_state(ncclComm_t comm) { return settled(ncclInProgress, comm); }

ncclResult_t wait_for_failure(ncclComm_t comm) {
  while (state_of(comm) == ncclSuccess) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return state_of(comm);
}

TEST(Shrink, LeavesOutRanksThatDoNotCallAndLeavesTheParentAlone) {
  EXPECT_EQ("", run_ranks({2, 1, 2}, [](Rank& self) {
              int excluded[] = {3, 0};
              const int place[] = {-1, 0, 1, -1, 2};
              if (place[self.rank] >= 0) {
                ncclComm_t smaller = nullptr;
                EXPECT_CALL(ncclCommShrink(self.comm, excluded, 2, &smaller, nullptr, NCCL_SHRINK_DEFAULT));
                must_work(smaller, place[self.rank], 3, self.stream);
                EXPECT_CALL(ncclCommDestroy(smaller));
              }
              must_work(self.comm, self.rank, 5, self.stream);
            }));
}

TEST(Shrink, MayBeRepeatedAndChained) {
  EXPECT_EQ("", run_ranks({1, 3}, [](Rank& self) {
              if (self.rank == 2) return;
              int excluded = 2;
              ncclComm_t first = nullptr;
              ncclComm_t second = nullptr;
              EXPECT_CALL(ncclCommShrink(self.comm, &excluded, 1, &first, nullptr, NCCL_SHRINK_DEFAULT));
              EXPECT_CALL(ncclCommShrink(self.comm, &excluded, 1, &second, nullptr, NCCL_SHRINK_DEFAULT));
              const int rank = self.rank < 2 ? self.rank : 2;
              must_work(first, rank, 3, self.stream);
              must_work(second, rank, 3, self.stream);
              if (rank != 0) {
                int zero = 0;
                ncclComm_t third = nullptr;
                EXPECT_CALL(ncclCommShrink(second, &zero, 1, &third, nullptr, NCCL_SHRINK_DEFAULT));
                must_work(third, rank - 1, 2, self.stream);
                EXPECT_CALL(ncclCommDestroy(third));
              }
              EXPECT_CALL(ncclCommDestroy(second));
              EXPECT_CALL(ncclCommDestroy(first));
            }));
}

TEST(Shrink, InheritsTheConfigurationUnlessAnotherIsGiven) {
  EXPECT_EQ("", run_ranks({1, 2}, [](Rank& self) {
              if (self.rank == 1) return;
              int excluded = 1;
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              ncclComm_t loose = nullptr;
              EXPECT_CALL(ncclCommShrink(self.comm, &excluded, 1, &loose, &config, NCCL_SHRINK_DEFAULT));
              expect_that(wait_for_state(loose) == ncclSuccess, "not ready");
              must_work(loose, self.rank / 2, 2, self.stream);
              ncclComm_t child = nullptr;
              const ncclResult_t result = ncclCommSplit(loose, 0, 0, &child, nullptr);  // non-blocking as its parent
              expect_that(result == ncclInProgress || result == ncclSuccess, "split");
              expect_that(wait_for_state(loose) == ncclSuccess && wait_for_state(child) == ncclSuccess, "split");
              EXPECT_CALL(ncclCommDestroy(child));
              EXPECT_CALL(ncclCommDestroy(loose));
            }));
}

TEST(Shrink, SeveralRanksOfAThreadShrinkInAGroup) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              ncclComm_t comms[4];
              ncclComm_t smaller[4] = {};
              make_communicators(comms, 4);
              int excluded = 1;
              EXPECT_CALL(ncclGroupStart());
              for (int i : {0, 2, 3}) {
                EXPECT_CALL(ncclCommShrink(comms[i], &excluded, 1, &smaller[i], nullptr, NCCL_SHRINK_DEFAULT));
              }
              EXPECT_CALL(ncclGroupEnd());
              for (int i : {0, 2, 3}) {
                int ranks = 0;
                EXPECT_CALL(ncclCommCount(smaller[i], &ranks));
                expect_that(ranks == 3, "3 ranks");
                EXPECT_CALL(ncclCommDestroy(smaller[i]));
              }
              for (ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Shrink, RefusesWhatMakesNoSense) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              int list[] = {1 - self.rank};
              int self_list[] = {self.rank};
              int wild[] = {7};
              ncclComm_t smaller = nullptr;
              expect_refusal(ncclCommShrink(nullptr, list, 1, &smaller, nullptr, 0), ncclInvalidArgument, "NULL");
              expect_refusal(ncclCommShrink(self.comm, nullptr, 1, &smaller, nullptr, 0), ncclInvalidArgument, "NULL");
              expect_refusal(ncclCommShrink(self.comm, list, 0, &smaller, nullptr, 0), ncclInvalidArgument, "exclude");
              expect_refusal(ncclCommShrink(self.comm, list, 1, nullptr, nullptr, 0), ncclInvalidArgument, "NULL");
              expect_refusal(ncclCommShrink(self.comm, wild, 1, &smaller, nullptr, 0), ncclInvalidArgument, "rank 7");
              expect_refusal(ncclCommShrink(self.comm, self_list, 1, &smaller, nullptr, 0), ncclInvalidArgument,
                             "itself");
              expect_refusal(ncclCommShrink(self.comm, list, 1, &smaller, nullptr, 2), ncclInvalidArgument, "flags");
              must_work(self.comm, self.rank, 2, self.stream);
              EXPECT_CALL(ncclCommShrink(self.comm, list, 1, &smaller, nullptr, 0));  // alone
              must_work(smaller, 0, 1, self.stream);
              EXPECT_CALL(ncclCommDestroy(smaller));
            }));
}

// The death of a process fails the communicator; those who live shrink, with their operations still in the streams.
void shrink_after_death(int process, int victim, const ncclUniqueId& id, bool revoke_first) {
  constexpr int kProcesses = 4;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  EXPECT_CALL(cudaStreamCreate(&stream));
  EXPECT_CALL(ncclCommInitRank(&comm, kProcesses, id, process));
  must_work(comm, process, kProcesses, stream);
  int* data = nullptr;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
  EXPECT_CALL(ncclAllReduce(data, data, 1024, ncclInt, ncclSum, comm, stream));
  EXPECT_CALL(cudaStreamSynchronize(stream));
  if (process == victim) raise(SIGKILL);  // all have finished the first operation; perhaps not the second
  const ncclResult_t launched = ncclAllReduce(data, data, 1024, ncclInt, ncclSum, comm, stream);
  expect_that(launched == ncclSuccess || launched == ncclRemoteError, "all-reduce with a dead rank");
  expect_that(wait_for_failure(comm) == ncclRemoteError, "the loss is not noticed");
  const std::string name = "rank " + std::to_string(victim) + " (";
  expect_that(std::strstr(ncclGetLastError(comm), name.c_str()) != nullptr, "the sentence does not name the victim");
  ncclComm_t smaller = nullptr;
  expect_refusal(ncclCommShrink(comm, &victim, 1, &smaller, nullptr, NCCL_SHRINK_DEFAULT), ncclRemoteError, "failed");
  if (revoke_first) {
    EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    expect_that(state_of(comm) == ncclSuccess, "revoked, but not quiet");
  }
  const int flags = revoke_first ? NCCL_SHRINK_DEFAULT : NCCL_SHRINK_ABORT;
  EXPECT_CALL(ncclCommShrink(comm, &victim, 1, &smaller, nullptr, flags));
  EXPECT_CALL(ncclCommAbort(comm));
  must_work(smaller, process < victim ? process : process - 1, kProcesses - 1, stream);
  EXPECT_CALL(cudaStreamSynchronize(stream));
  EXPECT_CALL(cudaFree(data));
  EXPECT_CALL(ncclCommDestroy(smaller));
  EXPECT_CALL(cudaStreamDestroy(stream));
}

TEST(Shrink, AfterADeathTheOthersGoOn) {
  for (const int victim : {1, 3, 0}) {
    for (const bool revoke_first : {false, true}) {
      const std::string wrong = run_processes(
          4, [&](int process, const ncclUniqueId& id) { shrink_after_death(process, victim, id, revoke_first); });
      EXPECT_EQ(wrong, "process " + std::to_string(victim) + " ended by signal 9\n") << revoke_first;
    }
  }
}

TEST(Revoke, StopsWhatRunsAndLeavesSplittingAndShrinking) {
  EXPECT_EQ("", run_ranks({2, 1}, [](Rank& self) {
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              int* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
              // Rank 2 never joins in: without the revocation the streams would wait for ever.
              if (self.rank != 2) EXPECT_CALL(ncclAllReduce(data, data, 8, ncclInt, ncclSum, comm, self.stream));
              EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              expect_that(state_of(comm) == ncclSuccess, "state");
              expect_refusal(ncclAllReduce(data, data, 8, ncclInt, ncclSum, comm, self.stream), ncclInvalidUsage,
                             "revoked");
              expect_refusal(ncclSend(data, 8, ncclInt, 0, comm, self.stream), ncclInvalidUsage, "revoked");
              expect_refusal(ncclCommFinalize(comm), ncclInvalidUsage, "revoked");
              void* registration = nullptr;
              expect_refusal(ncclCommRegister(comm, data, 64, &registration), ncclInvalidUsage, "revoked");
              EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));  // no second effect
              ncclComm_t again = nullptr;
              EXPECT_CALL(ncclCommSplit(comm, 0, self.rank, &again, nullptr));
              must_work(again, self.rank, 3, self.stream);
              EXPECT_CALL(ncclCommDestroy(again));
              if (self.rank != 1) {
                int excluded = 1;
                EXPECT_CALL(ncclCommShrink(comm, &excluded, 1, &again, nullptr, NCCL_SHRINK_DEFAULT));
                must_work(again, self.rank / 2, 2, self.stream);
                EXPECT_CALL(ncclCommDestroy(again));
              }
              if (self.rank == 0) {
                EXPECT_CALL(ncclCommAbort(comm));
              } else {
                EXPECT_CALL(ncclCommDestroy(comm));
              }
              must_work(self.comm, self.rank, 3, self.stream);
              EXPECT_CALL(cudaFree(data));  // waits for the kernels of all ranks on the GPU
            }));
}

/// A receive of another communicator stands in the stream before the collective that is given up, and ends rightly.
void give_up_behind_another(Rank& self, bool shrinks, const SharedCount& called, const SharedCount& given_up) {
  ncclComm_t comm = nullptr;
  EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
  int* data = nullptr;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 2 * sizeof(int)));
  const int before[2] = {self.rank, 5};
  EXPECT_CALL(copy_to_device(data, before, sizeof(before)));
  if (self.rank == 0) {
    EXPECT_CALL(ncclRecv(data, 1, ncclInt, 1, self.comm, self.stream));
    EXPECT_CALL(ncclAllReduce(data + 1, data + 1, 1, ncclInt, ncclSum, comm, self.stream));
  }
  called.meet(2);
  ncclComm_t child = nullptr;
  int excluded = 2;
  if (shrinks) {
    EXPECT_CALL(ncclCommShrink(comm, &excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT));
    expect_place(child, self.rank, 2);
  } else {
    EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
  }
  EXPECT_CALL(ncclCommAbort(comm));
  given_up.add();
  given_up.wait_for(2);
  if (self.rank == 1) EXPECT_CALL(ncclSend(data, 1, ncclInt, 0, self.comm, self.stream));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  int after[2] = {};
  EXPECT_CALL(cudaMemcpy(after, data, sizeof(after), cudaMemcpyDeviceToHost));
  expect_that(after[0] == 1, "received " + std::to_string(after[0]));
  expect_that(after[1] == 5, "what was given up has run");
  if (shrinks) must_work(child, self.rank, 2, self.stream);
  if (shrinks) EXPECT_CALL(ncclCommDestroy(child));
  EXPECT_CALL(cudaFree(data));
}

/// The rank does no more with it than to be in it.
void be_left_out(Rank& self, const SharedCount& given_up) {
  ncclComm_t comm = nullptr;
  EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
  given_up.wait_for(2);
  EXPECT_CALL(ncclCommAbort(comm));
}

TEST(Revoke, DoesNotWaitForWhatStandsBehindAnotherCommunicatorsOperation) {
#if !defined(NITINOL_VGPU)
  GTEST_SKIP() << "whether it has begun is not known on GPUs";
#endif
  for (const bool shrinks : {false, true}) {
    const TemporaryFolder folder;
    const SharedCount called;
    const SharedCount given_up;
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_FILE", folder.file("log.%p").c_str(), 1);
    EXPECT_EQ("", run_ranks({1, 1, 1}, [&](Rank& self) {
                if (self.rank == 2) return be_left_out(self, given_up);
                give_up_behind_another(self, shrinks, called, given_up);
                const std::string log = folder.read("log." + std::to_string(getpid()));
                expect_that(log.find("the communicator is revoked") != std::string::npos, "the log lacks it");
                expect_that(log.find("holds an operation of the revoked communicator back") == std::string::npos,
                            "it was waited for");
              }));
    for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_FILE"}) unsetenv(name);
  }
}

using CallOn = std::function<ncclResult_t(ncclComm_t, int*, cudaStream_t)>;

ncclResult_t reduce_on(ncclComm_t comm, int* data, cudaStream_t stream) {
  return ncclAllReduce(data, data, 8, ncclInt, ncclSum, comm, stream);
}

/// Rank 1's call ends in an error that names rank 0 and says the word.
void must_hear(ncclComm_t comm, cudaStream_t stream, const char* word) {
  expect_that(wait_for_failure(comm) == ncclRemoteError, "another code");
  const std::string sentence = ncclGetLastError(comm);
  expect_that(sentence.find("rank 0 (host ") != std::string::npos && sentence.find(word) != std::string::npos,
              "the sentence does not tell");
  EXPECT_CALL(cudaStreamSynchronize(stream));
}

/// Rank 0 revokes and does no more, perhaps without ever having called anything; rank 1 knows nothing of it and calls.
std::string call_beside_one_that_revokes(const CallOn& call, bool used_before) {
  return run_ranks({1, 1}, [&](Rank& self) {
    ncclComm_t comm = nullptr;
    int* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
    EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
    if (used_before) must_work(comm, self.rank, 2, self.stream);
    if (self.rank == 0) {
      EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    } else {
      EXPECT_CALL(call(comm, data, self.stream));
      must_hear(comm, self.stream, "revoked");
    }
    must_work(self.comm, self.rank, 2, self.stream);  // rank 0 waits here
    EXPECT_CALL(ncclCommAbort(comm));
    EXPECT_CALL(cudaFree(data));
  });
}

TEST(Revoke, IsHeardByARankThatWaitsForTheOneThatRevoked) {
  for (const bool used_before : {true, false}) {
    EXPECT_EQ("", call_beside_one_that_revokes(reduce_on, used_before)) << used_before;
    EXPECT_EQ("", call_beside_one_that_revokes(
                      [](ncclComm_t comm, int* data, cudaStream_t stream) {
                        return ncclRecv(data, 8, ncclInt, 0, comm, stream);
                      },
                      used_before))
        << used_before;
  }
}

ncclComm_t split_off(const Rank& self, int blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  ncclComm_t comm = nullptr;
  EXPECT_CALL(settled(ncclCommSplit(self.comm, 0, self.rank, &comm, &config), self.comm));
  EXPECT_CALL(wait_for_state(comm));
  return comm;
}

/// Rank 0 revokes and does no more: before the others call what waits for all ranks on the host, or perhaps while they
/// wait.
void wait_on_host_for_one_that_revokes(Rank& self, int blocking, bool before, const CallOn& call) {
  const ncclComm_t comm = split_off(self, blocking);
  const auto begin = std::chrono::steady_clock::now();
  if (before && self.rank == 0) EXPECT_CALL(settled(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), comm));
  must_work(self.comm, self.rank, self.ranks, self.stream);
  if (!before && self.rank == 0) EXPECT_CALL(settled(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), comm));
  if (self.rank != 0) {
    expect_that(settled(call(comm, nullptr, nullptr), comm) == ncclRemoteError, "another code");
    must_hear(comm, self.stream, "revoked the communicator");
  }
  expect_that(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30), "it took too long");
  must_work(self.comm, self.rank, self.ranks, self.stream);  // rank 0 waits here
  EXPECT_CALL(ncclCommAbort(comm));
}

void must_be_heard_on_the_host(const std::vector<int>& ranks_in_process, const CallOn& call) {
  for (const int blocking : {1, 0}) {
    for (const bool before : {true, false}) {
      EXPECT_EQ("", run_ranks(ranks_in_process,
                              [&](Rank& self) { wait_on_host_for_one_that_revokes(self, blocking, before, call); }))
          << blocking << before;
    }
  }
}

TEST(Revoke, IsHeardByRanksThatSplitWithoutTheOneThatRevoked) {
  const auto split = [](ncclComm_t comm, int*, cudaStream_t) {
    ncclComm_t child = nullptr;
    const ncclResult_t called = settled(ncclCommSplit(comm, 0, 0, &child, nullptr), comm);
    if (child != nullptr) EXPECT_CALL(ncclCommAbort(child));
    return called;
  };
  must_be_heard_on_the_host({1, 1, 1}, split);
  must_be_heard_on_the_host({3}, split);
}

TEST(Revoke, IsHeardByRanksThatFinalizeWithoutTheOneThatRevoked) {
  must_be_heard_on_the_host({1, 1, 1}, [](ncclComm_t comm, int*, cudaStream_t) { return ncclCommFinalize(comm); });
}

#if defined(NITINOL_VGPU)
/// Which rank 0 reaches for the first time in that call.
TEST(Revoke, IsHeardByARankOfTheProcessThatCallsWhenTheOneThatRevokedHasLeft) {
  const SharedCount gone;
  EXPECT_EQ("", run_ranks({2}, [&](Rank& self) {
              const ncclComm_t comm = split_off(self, 1);
              if (self.rank == 1) {
                EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
                EXPECT_CALL(ncclCommDestroy(comm));
                gone.add();
                return;
              }
              int* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              gone.wait_for(1);
              const auto begin = std::chrono::steady_clock::now();
              const ncclResult_t called = ncclAllReduce(data, data, 9, ncclInt, ncclSum, comm, self.stream);
              const std::string sentence = ncclGetLastError(comm);
              expect_that(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20), "it took too long");
              expect_that(called == ncclRemoteError, "returned " + std::to_string(called));
              expect_that(sentence.find("rank 1") != std::string::npos, sentence);
              EXPECT_CALL(ncclCommAbort(comm));
              EXPECT_CALL(cudaFree(data));
            }));
}
#endif

TEST(Revoke, OnAllRanksLeavesThemToSplitHoweverLateOneComes) {
  EXPECT_EQ("", run_ranks({1, 1, 1}, [&](Rank& self) {
              const ncclComm_t comm = split_off(self, 1);
              ncclComm_t child = nullptr;
              EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
              must_work(self.comm, self.rank, self.ranks, self.stream);
              // Longer than a rank waits that has not revoked it.
              if (self.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
              EXPECT_CALL(ncclCommSplit(comm, 0, self.rank, &child, nullptr));
              must_work(child, self.rank, self.ranks, self.stream);
              EXPECT_CALL(ncclCommDestroy(child));
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

/// While rank 1's call waits, rank 0 ends the communicator without ever having called anything.
std::string end_beside_a_call(const std::function<void(ncclComm_t)>& end, const char* word) {
  return run_ranks({1, 1}, [&](Rank& self) {
    ncclComm_t comm = nullptr;
    cudaStream_t other = nullptr;
    int* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
    EXPECT_CALL(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
    must_work(self.comm, self.rank, 2, self.stream);
    if (self.rank == 1) EXPECT_CALL(reduce_on(comm, data, other));
    must_work(self.comm, self.rank, 2, self.stream);
    if (self.rank == 0) end(comm);
    if (self.rank == 1) must_hear(comm, other, word);
    must_work(self.comm, self.rank, 2, self.stream);
    if (self.rank == 1) EXPECT_CALL(ncclCommAbort(comm));
    EXPECT_CALL(cudaStreamDestroy(other));
    EXPECT_CALL(cudaFree(data));
  });
}

TEST(Revoke, IsHeardEvenIfTheOneThatRevokedIsGone) {
  EXPECT_EQ("", end_beside_a_call(
                    [](ncclComm_t comm) {
                      EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
                      EXPECT_CALL(ncclCommDestroy(comm));
                    },
                    "revoked"));
}

TEST(Abort, IsHeardByARankThatWaitsForOneThatNeverCalled) {
  EXPECT_EQ("", end_beside_a_call([](ncclComm_t comm) { EXPECT_CALL(ncclCommAbort(comm)); }, "aborted"));
}

TEST(NonBlocking, CallsOfAGroupThatIsRefusedLeaveNobodyPolling) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              ncclComm_t alone = nullptr;
              ncclUniqueId own;
              EXPECT_CALL(ncclGetUniqueId(&own));
              expect_that(ncclCommInitRankConfig(&alone, 1, own, 0, &config) == ncclInProgress, "init");
              expect_that(wait_for_state(alone) == ncclSuccess, "not ready");
              ncclComm_t first = nullptr;
              ncclComm_t second = nullptr;
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclCommInitRankConfig(&first, 2, id, 0, &config));
              EXPECT_CALL(ncclCommRevoke(alone, NCCL_REVOKE_DEFAULT));
              expect_refusal(ncclCommInitRankConfig(&second, 2, id, 2, &config), ncclInvalidArgument, "invalid rank 2");
              expect_that(ncclGroupEnd() == ncclInvalidArgument, "the group");
              expect_that(first != nullptr && second == nullptr, "handles");
              expect_that(wait_for_state(first) == ncclInvalidArgument, "the first one's state");
              expect_that(wait_for_state(alone) == ncclSuccess, "revoking does not end");
              EXPECT_CALL(ncclCommAbort(first));
              EXPECT_CALL(ncclCommDestroy(alone));
            }));
}

/// Rank 2 is excluded by one of the others, and `leaver`, the other one, aborts its communicator instead. Its process
/// lives on, with another communicator or none.
void shrink_with_one_that_leaves(int leaver, bool has_another) {
  const SharedCount through;
  EXPECT_EQ("", run_processes(3, [&](int process, const ncclUniqueId& id) {
              ncclComm_t another = nullptr;
              ncclComm_t comm = nullptr;
              use_device_of(process);
              EXPECT_CALL(ncclCommInitRank(&another, 3, id, process));
              EXPECT_CALL(ncclCommSplit(another, 0, process, &comm, nullptr));
              if (!has_another) EXPECT_CALL(ncclCommDestroy(another));
              through.meet(3);
              if (process == leaver) EXPECT_CALL(ncclCommAbort(comm));
              if (process == 1 - leaver) {
                const ShrinkAttempt attempt(comm, 2);
                through.add();
                attempt.must_have_failed(std::chrono::seconds(10), {") has left the communicator"});
                expect_that(attempt.code() == ncclRemoteError, "code " + std::to_string(attempt.code()));
              }
              through.wait_for(4);
              if (process != leaver) EXPECT_CALL(ncclCommAbort(comm));
              if (has_another) EXPECT_CALL(ncclCommAbort(another));
            }));
}

TEST(Shrink, IsToldOfAMemberThatHasLeftThoughItHasNeverShrunk) {
  for (const int leaver : {0, 1}) {
    for (const bool has_another : {false, true}) shrink_with_one_that_leaves(leaver, has_another);
  }
}

void end_a_thread_within_a_group(ncclComm_t comm, cudaStream_t stream) {
  std::thread([&] {
    EXPECT_CALL(ncclGroupStart());
    EXPECT_CALL(ncclBroadcast(nullptr, nullptr, 0, ncclInt, 0, comm, stream));
  }).join();
}

/// Rank 0 waits in the first shrink when the communicator fails because of rank 3, and comes last to the second one.
std::string shrink_after_one_that_ended(int excluded_first) {
  const SharedCount failed;
  return run_ranks({1, 1, 1, 1}, [&](Rank& self) {
    ncclComm_t smaller = nullptr;
    if (self.rank == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // rank 0 is likely to wait
      end_a_thread_within_a_group(self.comm, self.stream);
    }
    if (self.rank == 0) {
      expect_that(
          ncclCommShrink(self.comm, &excluded_first, 1, &smaller, nullptr, NCCL_SHRINK_DEFAULT) == ncclInvalidUsage,
          "not for a group that was not carried out");
    }
    expect_that(wait_for_failure(self.comm) == ncclInvalidUsage, "the communicator");
    failed.meet(4);
    if (self.rank == 3) return;
    if (self.rank == 0) std::this_thread::sleep_for(std::chrono::seconds(1));  // the others ask what it does
    int excluded = 3;
    EXPECT_CALL(ncclCommShrink(self.comm, &excluded, 1, &smaller, nullptr, NCCL_SHRINK_ABORT));
    must_work(smaller, self.rank, 3, self.stream);
    EXPECT_CALL(ncclCommDestroy(smaller));
  });
}

TEST(Shrink, ThatEndedAsTheCommunicatorFailedIsNoContradictionToItsRepair) {
  EXPECT_EQ(
      "", run_at_once({[] { return shrink_after_one_that_ended(2); }, [] { return shrink_after_one_that_ended(3); }}));
}

/// Rank 1 is left out. The ranks meet where the lowest one is, which the missing one may be itself.
std::string shrink_without_word_of(int missing) {
  const SharedCount through;
  return run_ranks({1, 1, 1, 1}, [&](Rank& self) {
    if (self.rank != 1 && self.rank != missing) {
      const ShrinkAttempt attempt(self.comm, 1);
      through.meet(4);
      const std::string name = "rank " + std::to_string(missing) + " (host ";
      attempt.must_have_failed(std::chrono::seconds(40), {name, ") of the old communicator", "the same call"});
    } else {
      through.meet(4);
    }
  });
}

TEST(Shrink, NamesARankThatNeverCallsByItsOldNumber) {
  const ShortInitTimeout soon;
  EXPECT_EQ("", run_at_once({[] { return shrink_without_word_of(0); }, [] { return shrink_without_word_of(2); }}));
}

/// Rank 3 is left out. One is late for the first time, and all come for the second.
std::string shrink_again_with(int late) {
  const SharedCount failed;
  return run_ranks({1, 1, 1, 1}, [&](Rank& self) {
    if (self.rank != 3 && self.rank != late) {
      const ShrinkAttempt attempt(self.comm, 3);
      attempt.must_have_failed(std::chrono::seconds(40), {});
    }
    failed.meet(4);
    if (self.rank == 3) return;
    ncclComm_t smaller = nullptr;
    int excluded = 3;
    EXPECT_CALL(ncclCommShrink(self.comm, &excluded, 1, &smaller, nullptr, NCCL_SHRINK_ABORT));
    must_work(smaller, self.rank, 3, self.stream);
    EXPECT_CALL(ncclCommDestroy(smaller));
  });
}

TEST(Shrink, SucceedsWithARankThatWasLateForAnEarlierOne) {
  const ShortInitTimeout soon;
  EXPECT_EQ("", run_at_once({[] { return shrink_again_with(0); }, [] { return shrink_again_with(2); }}));
}

// The call that made the child may not have ended yet when its state says that it is there.
TEST(NonBlocking, AChildThatIsReadyOutlivesAnAbortOfItsParent) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              constexpr int kRounds = 40;
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              for (int round = 0; round < kRounds; ++round) {
                ncclComm_t parent = nullptr;
                ncclComm_t child = nullptr;
                EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &parent, &config));
                expect_that(wait_for_state(parent) == ncclSuccess, "the parent");
                const ncclResult_t split = ncclCommSplit(parent, 0, self.rank, &child, nullptr);
                expect_that(split == ncclInProgress, "split");
                while (state_of(child) == ncclInProgress) std::this_thread::yield();
                expect_that(state_of(child) == ncclSuccess, "the child");
                EXPECT_CALL(ncclCommAbort(parent));
                must_work(child, self.rank, 2, self.stream);
                EXPECT_CALL(ncclCommDestroy(child));
              }
            }));
}

// Whoever polls the child is not to wait for a split that was aborted before it began.
TEST(NonBlocking, AnAbortOfItsParentRightBehindTheSplitFailsTheChild) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              constexpr int kRounds = 20;
              for (int round = 0; round < kRounds; ++round) {
                const std::vector<ncclComm_t> parents = make_non_blocking(2);
                std::vector<ncclComm_t> children(parents.size());
                EXPECT_CALL(ncclGroupStart());
                for (size_t i = 0; i < parents.size(); ++i) {
                  EXPECT_CALL(ncclCommSplit(parents[i], 0, 0, &children[i], nullptr));
                }
                expect_that(ncclGroupEnd() == ncclInProgress, "split");
                for (const ncclComm_t parent : parents) EXPECT_CALL(ncclCommAbort(parent));
                for (const ncclComm_t child : children) {
                  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
                  while (state_of(child) == ncclInProgress && std::chrono::steady_clock::now() < deadline) {
                    std::this_thread::yield();
                  }
                  expect_that(state_of(child) != ncclInProgress, "the child is in progress for ever");
                  EXPECT_CALL(ncclCommAbort(child));
                }
              }
            }));
}

TEST(Revoke, OfANonBlockingCommunicatorIsPolled) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, &config));
              expect_that(wait_for_state(comm) == ncclSuccess, "init");
              expect_refusal(ncclCommRevoke(comm, 1), ncclInvalidArgument, "flags");
              const ncclResult_t revoked = ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
              expect_that(revoked == ncclSuccess || revoked == ncclInProgress, "revoke");
              expect_that(wait_for_state(comm) == ncclSuccess, "revoked");
              EXPECT_CALL(ncclCommDestroy(comm));
              EXPECT_CALL(ncclCommRevoke(nullptr, 77));
            }));
}

TEST(Revoke, ASplitThatFailsAfterwardsIsNotInProgressForEver) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              const auto comms = make_non_blocking(2);
              for (const ncclComm_t comm : comms) static_cast<void>(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
              for (const ncclComm_t comm : comms) EXPECT_CALL(wait_for_state(comm));
              ncclComm_t child = nullptr;
              expect_that(ncclCommSplit(comms[0], 0, 0, &child, nullptr) == ncclInProgress, "the split waits");
              EXPECT_CALL(ncclCommAbort(comms[1]));
              expect_that(wait_for_state(child) != ncclSuccess, "a child of one rank that has gone");
              EXPECT_CALL(wait_for_state(comms[0]));
              EXPECT_CALL(ncclCommAbort(child));
              EXPECT_CALL(ncclCommAbort(comms[0]));
            }));
}

TEST(Revoke, OfRanksWhoseFirstUseIsUnderWayLeavesThemToSplit) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              for (int round = 0; round < 10; ++round) {
                const auto comms = make_non_blocking(3);
                std::vector<ncclComm_t> children(comms.size());
                std::vector<int*> data(comms.size());
                EXPECT_CALL(ncclGroupStart());
                for (size_t rank = 0; rank < comms.size(); ++rank) {
                  use_device_of(static_cast<int>(rank));
                  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data[rank]), 400));
                  EXPECT_CALL(ncclAllReduce(data[rank], data[rank], 100, ncclInt, ncclSum, comms[rank], nullptr));
                }
                static_cast<void>(ncclGroupEnd());
                std::this_thread::sleep_for(std::chrono::microseconds(30 * round));
                for (const ncclComm_t comm : comms) static_cast<void>(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
                for (const ncclComm_t comm : comms) EXPECT_CALL(wait_for_state(comm));
                EXPECT_CALL(ncclGroupStart());
                for (size_t rank = 0; rank < comms.size(); ++rank) {
                  EXPECT_CALL(ncclCommSplit(comms[rank], 0, static_cast<int>(rank), &children[rank], nullptr));
                }
                static_cast<void>(ncclGroupEnd());
                for (const ncclComm_t comm : comms) EXPECT_CALL(wait_for_state(comm));
                for (const ncclComm_t child : children) EXPECT_CALL(state_of(child));
                for (const ncclComm_t child : children) EXPECT_CALL(ncclCommAbort(child));
                for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommAbort(comm));
                for (int* const memory : data) EXPECT_CALL(cudaFree(memory));
              }
            }));
}

TEST(Shrink, InAbortModeTheParentIsInProgressUntilTheChildIsReady) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              const auto comms = make_non_blocking(3);
              ncclComm_t children[2] = {};
              int excluded = 2;
              const auto shrink = [&](size_t rank) {
                use_device_of(static_cast<int>(rank));
                const ncclResult_t begun =
                    ncclCommShrink(comms[rank], &excluded, 1, &children[rank], nullptr, NCCL_SHRINK_ABORT);
                expect_that(begun == ncclInProgress, "the shrink waits");
              };
              shrink(0);
              for (int look = 0; look < 50; ++look) {
                expect_that(state_of(comms[0]) == ncclInProgress, "rank 1 has not called yet");
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
              }
              shrink(1);
              for (size_t rank = 0; rank < 2; ++rank) {
                EXPECT_CALL(wait_for_state(comms[rank]));
                EXPECT_CALL(state_of(children[rank]));
              }
              for (const ncclComm_t child : children) EXPECT_CALL(ncclCommAbort(child));
              for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommAbort(comm));
            }));
}

}  // namespace
}  // namespace nitinol::testing
