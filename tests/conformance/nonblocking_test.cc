// Operations on communicators that do not block: what has to be waited for is waited for in the background.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "cluster.h"
#include "ints.h"
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

}  // namespace
}  // namespace nitinol::testing
