// Revoking: who hears of it, and in which order things may be done.
#include <gtest/gtest.h>
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
#include "must_work.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

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

}  // namespace
}  // namespace nitinol::testing
