// Shrinking: what is left of a communicator after some of its ranks are gone.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "cluster.h"
#include "must_work.h"
#include "nccl.h"
#include "shared_count.h"
#include "shrink_attempt.h"

namespace nitinol::testing {
namespace {

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

/// As PyTorch leaves the old one. With NCCL, too, the rank that is left out need not call.
TEST(Shrink, InAbortModeTheParentIsFinalizedAndDestroyedWithoutTheRankThatIsLeftOut) {
  SharedCount through;
  EXPECT_EQ("", run_ranks({1, 1, 1}, [&](Rank& self) {
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              int* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
              if (self.rank == 2) {
                through.wait_for(2);
                EXPECT_CALL(ncclCommAbort(comm));
              } else {
                EXPECT_CALL(ncclAllReduce(data, data, 8, ncclInt, ncclSum, comm, self.stream));
                ncclComm_t child = nullptr;
                int excluded = 2;
                EXPECT_CALL(ncclCommShrink(comm, &excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT));
                EXPECT_CALL(ncclCommFinalize(comm));
                expect_that(state_of(comm) == ncclSuccess, "state");
                expect_refusal(ncclAllReduce(data, data, 8, ncclInt, ncclSum, comm, self.stream), ncclInvalidUsage,
                               "stopped by ncclCommShrink");
                EXPECT_CALL(ncclCommDestroy(comm));
                must_work(child, self.rank, 2, self.stream);
                EXPECT_CALL(ncclCommDestroy(child));
                through.add();
              }
              must_work(self.comm, self.rank, 3, self.stream);
              EXPECT_CALL(cudaFree(data));
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
