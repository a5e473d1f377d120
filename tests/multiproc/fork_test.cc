// A process forked from a rank has a copy of its communicator, and of the memory that the peers see. Whatever it does
// with it, the parent's job goes on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cluster.h"
#include "nccl.h"
#include "nitinol.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kProcesses = 2;
constexpr int kFloats = 100;

/// A copy of a communicator, and what the parent uses with it.
struct Inherited {
  ncclComm_t comm = nullptr;
  float* data = nullptr;
};
using Calls = std::function<void(const Inherited&)>;

/// Runs `calls` in a child, which is to come to their end.
void call_in_child(const Inherited& inherited, const Calls& calls) {
  const pid_t child = fork();
  if (child == 0) {
    int status = 0;
    try {
      calls(inherited);
    } catch (const std::exception& error) {
      static_cast<void>(fprintf(stderr, "%s\n", error.what()));
      status = 1;
    }
    _exit(status);
  }
  int status = -1;
  waitpid(child, &status, 0);
  expect_that(status == 0, "a call in the child went wrong");
}

/// In the child of rank 0, while rank 1 waits in an operation. Both go on to work afterwards.
std::string with_a_child_that(const Calls& calls) {
  const SharedCount waiting;
  return run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
    Inherited mine;
    use_device_of(process);
    EXPECT_CALL(ncclCommInitRank(&mine.comm, kProcesses, id, process));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&mine.data), kFloats * sizeof(float)));
    const auto reduce = [&] {
      EXPECT_CALL(ncclAllReduce(mine.data, mine.data, kFloats, ncclFloat, ncclSum, mine.comm, nullptr));
    };
    reduce();
    EXPECT_CALL(cudaDeviceSynchronize());
    if (process == 1) reduce();
    waiting.meet(kProcesses);
    if (process == 0) {
      call_in_child(mine, calls);
      reduce();
    }
    for (int i = 0; i < 3; ++i) reduce();
    EXPECT_CALL(cudaDeviceSynchronize());
    expect_that(state_of(mine.comm) == ncclSuccess, "the parent's communicator has failed");
    EXPECT_CALL(ncclCommDestroy(mine.comm));
    EXPECT_CALL(cudaFree(mine.data));
  });
}

void expect_refused(ncclResult_t result, const char* call) {
  const std::string error = ncclGetLastError(nullptr);
  const bool said = error.find("was forked: a forked process cannot use it") != std::string::npos;
  expect_that(result == ncclInvalidUsage && said, std::string(call) + ": " + error);
}
#define EXPECT_REFUSED(call) expect_refused(call, #call)

TEST(ForkedChild, EndsItsCopyOfACommunicatorAndNothingElse) {
  EXPECT_EQ("", with_a_child_that([](const Inherited& its) { EXPECT_CALL(ncclCommDestroy(its.comm)); }));
  EXPECT_EQ("", with_a_child_that([](const Inherited& its) { EXPECT_CALL(ncclCommAbort(its.comm)); }));
}

TEST(ForkedChild, IsRefusedWhateverItWantsToDoWithTheCopy) {
  EXPECT_EQ("", with_a_child_that([](const Inherited& its) {
              int excluded = 1;
              ncclComm_t made = nullptr;
              ncclResult_t state = ncclSuccess;
              EXPECT_REFUSED(ncclAllReduce(its.data, its.data, kFloats, ncclFloat, ncclSum, its.comm, nullptr));
              EXPECT_REFUSED(ncclSend(its.data, kFloats, ncclFloat, 1, its.comm, nullptr));
              EXPECT_REFUSED(ncclCommSplit(its.comm, 0, 0, &made, nullptr));
              EXPECT_REFUSED(ncclCommShrink(its.comm, &excluded, 1, &made, nullptr, NCCL_SHRINK_ABORT));
              EXPECT_REFUSED(ncclCommRevoke(its.comm, NCCL_REVOKE_DEFAULT));
              EXPECT_REFUSED(ncclCommFinalize(its.comm));
              EXPECT_REFUSED(nitinolCommSetTimeout(its.comm, 1));
              EXPECT_REFUSED(nitinolCommDump(its.comm, "/dev/null"));
              EXPECT_REFUSED(ncclCommGetAsyncError(its.comm, &state));
            }));
}

TEST(ForkedChild, KnowsWhichRankItIsACopyOf) {
  EXPECT_EQ("", with_a_child_that([](const Inherited& its) { expect_place(its.comm, 0, kProcesses); }));
}

}  // namespace
}  // namespace nitinol::testing
