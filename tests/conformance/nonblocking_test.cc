// Operations on communicators that do not block: what has to be waited for is waited for in the background.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster.h"
#include "ints.h"
#include "must_work.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kProcesses = 3;
constexpr int kSum = kProcesses * (kProcesses + 1) / 2;  // of rank + 1
constexpr int kCount = 700;

/// One rank of a communicator of all processes, nothing of which has been used.
struct Member {
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;

  Member(int process, const ncclUniqueId& id) : rank(process) {
    use_device_of(process);
    EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    const ncclResult_t begun = ncclCommInitRankConfig(&comm, kProcesses, id, process, &config);
    EXPECT_CALL(settled(begun, comm));
  }
  ~Member() {
    static_cast<void>(ncclCommDestroy(comm));
    static_cast<void>(cudaStreamDestroy(stream));
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  ncclResult_t sum(const Ints& data) const { return sum(data, comm); }
  ncclResult_t sum(const Ints& data, ncclComm_t whose) const {
    return ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, whose, stream);
  }
  /// `called` went on in the background, and has come to `value` everywhere.
  void must_end_in(ncclResult_t called, const Ints& data, int value) const {
    expect_that(called == ncclInProgress, "something was waited for in the call");
    EXPECT_CALL(settled(called, comm));
    EXPECT_CALL(cudaStreamSynchronize(stream));
    data.must_be(value, "the result");
  }
};

std::string with_members(const std::function<void(const Member&)>& body) {
  return run_processes(kProcesses, [&](int process, const ncclUniqueId& id) { body(Member(process, id)); });
}

TEST(NonBlocking, AFirstCollectiveIsPolledAndLaterOnesAreInTheirStreamAtOnce) {
  EXPECT_EQ("", with_members([](const Member& self) {
              const Ints data(kCount, self.rank + 1);
              self.must_end_in(self.sum(data), data, kSum);
              data.fill(self.rank + 1);
              EXPECT_CALL(self.sum(data));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              data.must_be(kSum, "the second result");
            }));
}

/// One rank's stream is gone: the state of all says so.
std::string sum_with_a_destroyed_stream() {
  const SharedCount ready;  // whoever has not polled that it is would hear of the error in its place
  return with_members([&](const Member& self) {
    const Ints data(kCount, self.rank + 1);
    cudaStream_t stream = self.stream;
    ready.add();
    if (self.rank == 0) {
      ready.wait_for(kProcesses);
      EXPECT_CALL(cudaStreamCreate(&stream));
      EXPECT_CALL(cudaStreamDestroy(stream));
    }
    ncclResult_t state =
        settled(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, self.comm, stream), self.comm);
    for (; state == ncclSuccess; state = state_of(self.comm)) std::this_thread::yield();  // another's error
    expect_that(state == (self.rank == 0 ? ncclUnhandledCudaError : ncclRemoteError), "not told");
    const std::string said = ncclGetLastError(self.comm);
    expect_that(said.find("has it been destroyed?") != std::string::npos, said);
  });
}

TEST(NonBlocking, ADestroyedStreamIsNamedToWhoPolls) {
#if defined(NITINOL_CUDA)
  GTEST_SKIP() << "CUDA crashes in any call with such a stream";
#endif
  EXPECT_EQ("", sum_with_a_destroyed_stream());
  setenv("NITINOL_CHECK", "strict", 1);
  EXPECT_EQ("", sum_with_a_destroyed_stream()) << "where calls are compared";
  unsetenv("NITINOL_CHECK");
}

TEST(NonBlocking, AFirstGroupOfMessagesIsPolled) {
  EXPECT_EQ("", with_members([](const Member& self) {
              const int next = (self.rank + 1) % kProcesses;
              const int last = (self.rank + kProcesses - 1) % kProcesses;
              const Ints from(kCount, self.rank);
              const Ints to(kCount);
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclSend(from.data(), kCount, ncclInt, next, self.comm, self.stream));
              EXPECT_CALL(ncclRecv(to.data(), kCount, ncclInt, last, self.comm, self.stream));
              self.must_end_in(ncclGroupEnd(), to, last);
            }));
}

/// Ranks name the communicators in different orders. One was used before, the other two were not.
TEST(NonBlocking, AGroupOverSeveralCommunicatorsIsPolledOnAllOfThem) {
  EXPECT_EQ("", with_members([](const Member& self) {
              constexpr int kAll = 3;
              ncclComm_t comms[kAll] = {self.comm, nullptr, nullptr};
              for (int i : {1, 2}) {
                EXPECT_CALL(settled(ncclCommSplit(self.comm, 0, self.rank, &comms[i], nullptr), self.comm));
                EXPECT_CALL(settled(ncclInProgress, comms[i]));
              }
              const Ints first(kCount, self.rank + 1);
              self.must_end_in(self.sum(first), first, kSum);
              const Ints data[kAll] = {Ints(kCount, 1), Ints(kCount, 2), Ints(kCount, 3)};
              EXPECT_CALL(ncclGroupStart());
              for (int i = 0; i < kAll; ++i) {
                const int which = (i + self.rank) % kAll;
                EXPECT_CALL(self.sum(data[which], comms[which]));
              }
              expect_that(ncclGroupEnd() == ncclInProgress, "something was waited for in the call");
              for (ncclComm_t comm : comms) EXPECT_CALL(settled(ncclInProgress, comm));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              for (int i = 0; i < kAll; ++i) data[i].must_be((i + 1) * kProcesses, "a result");
              EXPECT_CALL(ncclGroupStart());
              for (int i = 0; i < kAll; ++i) EXPECT_CALL(self.sum(data[i], comms[i]));
              EXPECT_CALL(ncclGroupEnd());  // nothing has to be waited for any more
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              for (int i : {1, 2}) EXPECT_CALL(ncclCommDestroy(comms[i]));
            }));
}

TEST(NonBlocking, AFirstUseIsCapturedByTheCallItself) {
  EXPECT_EQ("", with_members([](const Member& self) {
              const Ints data(kCount, self.rank + 1);
              cudaGraph_t graph = nullptr;
              cudaGraphExec_t executable = nullptr;
              EXPECT_CALL(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal));
              EXPECT_CALL(self.sum(data));
              EXPECT_CALL(cudaStreamEndCapture(self.stream, &graph));
              EXPECT_CALL(cudaGraphInstantiate(&executable, graph, 0));
              EXPECT_CALL(cudaGraphUpload(executable, self.stream));  // as streams_test says
              EXPECT_CALL(cudaGraphLaunch(executable, self.stream));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              data.must_be(kSum, "the result");
              EXPECT_CALL(cudaGraphExecDestroy(executable));
              EXPECT_CALL(cudaGraphDestroy(graph));
            }));
}

/// That stream is another one on each thread.
TEST(NonBlocking, AFirstUseInAThreadsOwnStreamIsInItAtOnce) {
  EXPECT_EQ(
      "", with_members([](const Member& self) {
        const Ints data(kCount, self.rank + 1);
        EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, self.comm, cudaStreamPerThread));
        EXPECT_CALL(cudaStreamSynchronize(cudaStreamPerThread));
        data.must_be(kSum, "the result");
      }));
}

TEST(NonBlocking, WhatIsCalledWhileAnotherCallIsInProgressIsNotCarriedOut) {
  setenv("NITINOL_CHECK", "strict", 1);  // so that rank 0's call waits until the others have called
  const SharedCount refused;
  EXPECT_EQ("", with_members([&](const Member& self) {
              const Ints data(kCount, 1);
              const Ints other(kCount, 1);
              if (self.rank != 0) refused.wait_for(1);
              const ncclResult_t called = self.sum(data);
              if (self.rank == 0) {
                expect_that(self.sum(other) == ncclInvalidArgument, "a second call was accepted");
                expect_that(state_of(self.comm) == ncclInProgress, "the first call is through alone");
                refused.add();
              }
              self.must_end_in(called, data, kProcesses);
              other.must_be(1, "what was refused");
            }));
  unsetenv("NITINOL_CHECK");
}

TEST(NonBlocking, CallsThatDifferAreToldWhoPolls) {
  setenv("NITINOL_CHECK", "strict", 1);
  EXPECT_EQ("", with_members([](const Member& self) {
              const Ints data(kCount, 1);
              const auto op = self.rank == 1 ? ncclMax : ncclSum;
              const ncclResult_t called =
                  ncclAllReduce(data.data(), data.data(), kCount, ncclInt, op, self.comm, self.stream);
              expect_that(called == ncclInProgress, "something was waited for in the call");
              expect_that(settled(called, self.comm) == ncclInvalidUsage, "not found");
              expect_that(std::strstr(ncclGetLastError(self.comm), "do not match") != nullptr, "the sentence");
            }));
  unsetenv("NITINOL_CHECK");
}

enum class Way { kSplit, kShrink, kShrinkAbort };

/// Begins to make a communicator of rank 0 and others, which do not call.
ncclComm_t begin_to_make(Way way, ncclComm_t comm) {
  int excluded = 2;
  ncclComm_t child = nullptr;
  const int flags = way == Way::kShrinkAbort ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT;
  const ncclResult_t begun = way == Way::kSplit ? ncclCommSplit(comm, 0, 0, &child, nullptr)
                                                : ncclCommShrink(comm, &excluded, 1, &child, nullptr, flags);
  expect_that(begun == ncclInProgress && child != nullptr, "it does not begin");
  return child;
}

void refuses(ncclResult_t got) {
  expect_that(got == ncclInvalidArgument && std::strstr(ncclGetLastError(nullptr), "still") != nullptr, "not refused");
}

void must_refuse_more(ncclComm_t comm) {
  int excluded = 2;
  ncclComm_t none = nullptr;
  refuses(ncclCommSplit(comm, 0, 0, &none, nullptr));
  for (const int flags : {NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT}) {
    refuses(ncclCommShrink(comm, &excluded, 1, &none, nullptr, flags));
  }
  expect_that(none == nullptr, "a handle");
}

/// As threads do that have a rank of each; the default patience is minutes.
TEST(NonBlocking, RanksOfOneProcessMayFinalizeTwoCommunicatorsInOppositeOrders) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              const std::vector<ncclComm_t> first = make_non_blocking(2);
              const std::vector<ncclComm_t> second = make_non_blocking(2);
              const auto begin = std::chrono::steady_clock::now();
              for (const ncclComm_t comm : {first[0], second[1], first[1], second[0]}) {
                EXPECT_CALL(settled(ncclCommFinalize(comm), comm));
              }
              expect_that(std::chrono::steady_clock::now() - begin < std::chrono::seconds(60), "it took too long");
              for (const std::vector<ncclComm_t>& comms : {first, second}) {
                for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
              }
            }));
}

TEST(NonBlocking, ARevokeRightBehindAFinalizeThatHasHardlyBegunHolds) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              for (int i = 0; i < 100; ++i) {
                const std::vector<ncclComm_t> comms = make_non_blocking(2);
                expect_that(ncclCommFinalize(comms[0]) == ncclInProgress, "the finalize");
                const ncclResult_t revoked = ncclCommRevoke(comms[0], NCCL_REVOKE_DEFAULT);
                // Else the finalize has begun.
                if (revoked != ncclInvalidArgument) EXPECT_CALL(settled(revoked, comms[0]));
                for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommAbort(comm));
              }
            }));
}

TEST(NonBlocking, ASplitOrShrinkOfARevokedOneIsRefusedAtOnceWhileAnotherIsUnderWay) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              for (const Way way : {Way::kSplit, Way::kShrink, Way::kShrinkAbort}) {
                const auto comms = make_non_blocking(3);
                if (way != Way::kShrinkAbort) {
                  static_cast<void>(ncclCommRevoke(comms[0], NCCL_REVOKE_DEFAULT));
                  EXPECT_CALL(settled(ncclInProgress, comms[0]));
                }
                const ncclComm_t child = begin_to_make(way, comms[0]);
                must_refuse_more(comms[0]);
                expect_that(state_of(comms[0]) == ncclInProgress, "the first one is through alone");
                EXPECT_CALL(ncclCommAbort(comms[0]));
                EXPECT_CALL(ncclCommAbort(child));
                for (const size_t rank : {1, 2}) EXPECT_CALL(ncclCommAbort(comms[rank]));
              }
            }));
}

TEST(NonBlocking, ARevokeEndsAShrinkThatWaitsForRanks) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              for (const bool by_another_shrink : {false, true}) {
                const auto comms = make_non_blocking(3);
                const ncclComm_t first = begin_to_make(Way::kShrink, comms[0]);
                ncclComm_t second = nullptr;
                if (by_another_shrink) {
                  second = begin_to_make(Way::kShrinkAbort, comms[0]);
                } else {
                  static_cast<void>(ncclCommRevoke(comms[0], NCCL_REVOKE_DEFAULT));
                  EXPECT_CALL(settled(ncclInProgress, comms[0]));
                }
                expect_that(settled(ncclInProgress, first) == ncclRemoteError, "the first shrink's child");
                for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommAbort(comm));
                for (const ncclComm_t child : {first, second}) EXPECT_CALL(ncclCommAbort(child));
              }
            }));
}

TEST(NonBlocking, AGroupThatShrinksInAbortModeIsInProgressUntilItsLastChildIsReady) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              const auto comms = make_non_blocking(3);
              int excluded = 2;
              ncclComm_t children[2][2] = {};
              EXPECT_CALL(ncclGroupStart());
              for (size_t rank = 0; rank < 2; ++rank) {
                use_device_of(static_cast<int>(rank));
                EXPECT_CALL(ncclCommRevoke(comms[rank], NCCL_REVOKE_DEFAULT));
                for (ncclComm_t& child : children[rank]) {
                  EXPECT_CALL(ncclCommShrink(comms[rank], &excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT));
                }
              }
              EXPECT_CALL(settled(ncclGroupEnd(), comms[0]));
              for (const ncclComm_t child : children[0]) EXPECT_CALL(state_of(child));
              EXPECT_CALL(settled(ncclInProgress, comms[1]));
              for (const auto& of_rank : children) {
                for (const ncclComm_t child : of_rank) EXPECT_CALL(ncclCommAbort(child));
              }
              for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommAbort(comm));
            }));
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

/// Threads that have such a name's beginning: how many, and whether all of them leave SIGTERM to others.
std::pair<int, bool> threads_without_signals(const std::string& beginning) {
  std::pair<int, bool> found{0, true};
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string name;
    std::string blocked;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("Name:\t")) name = line.substr(6);
      if (line.starts_with("SigBlk:\t")) blocked = line.substr(8);
    }
    if (!name.starts_with(beginning) || blocked.empty()) continue;  // of another, or it has just ended
    ++found.first;
    const bool blocks = (std::stoull(blocked, nullptr, 16) >> (SIGTERM - 1) & 1U) != 0;
    found.second = found.second && blocks;
  }
  return found;
}

TEST(NonBlocking, ThreadsThatCallsGoOnInTakeNoSignals) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              setenv("NCCL_SET_THREAD_NAME", "1", 1);
              use_device_of(0);
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              ncclComm_t comm = nullptr;
              expect_that(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress, "nobody else comes");
              std::pair<int, bool> found;
              while (found.first == 0) found = threads_without_signals("NitinolJob");
              expect_that(found.second, "SIGTERM may come to a thread of the library's");
              EXPECT_CALL(ncclCommAbort(comm));
            }));
}

// The last of a process to finalise leaves for all of it, on a thread that its abort waits for.
TEST(NonBlocking, AnAbortDoesNotWaitForOthersThatFinaliseInVain) {
  const SharedCount through;
  setenv("NITINOL_TIMEOUT", "80", 1);
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              std::vector<ncclComm_t> comms(process == 0 ? 2 : 1);
              EXPECT_CALL(ncclGroupStart());
              for (size_t i = 0; i < comms.size(); ++i) {
                const int rank = 2 * process + static_cast<int>(i);
                use_device_of(rank);
                EXPECT_CALL(ncclCommInitRankConfig(&comms[i], 3, id, rank, &config));
              }
              const ncclResult_t begun = ncclGroupEnd();
              for (const ncclComm_t comm : comms) EXPECT_CALL(settled(begun, comm));
              if (process == 0) {  // the other never does
                for (const ncclComm_t comm : comms) expect_that(ncclCommFinalize(comm) == ncclInProgress, "alone");
                std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until they wait in the background
                const auto begin = std::chrono::steady_clock::now();
                EXPECT_CALL(ncclCommAbort(comms[1]));
                EXPECT_CALL(ncclCommAbort(comms[0]));
                expect_that(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30), "aborts waited");
              }
              through.meet(2);
              if (process == 1) EXPECT_CALL(ncclCommAbort(comms[0]));
            }));
  unsetenv("NITINOL_TIMEOUT");
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

}  // namespace
}  // namespace nitinol::testing
