// Leaving and shrinking when nobody has set a deadline: with the default patience of minutes, what can be known is not
// waited for.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "cluster.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kProcesses = 4;
// Far less than NITINOL_INIT_TIMEOUT, far more than it takes.
constexpr std::chrono::seconds kInTime{40};

void expect_that(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what + " (last error: " + ncclGetLastError(nullptr) + ")");
}

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
    for (ncclResult_t state = ncclSuccess; state == ncclSuccess;) EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
    if (process == victim) {
      ready.wait_for(2);
      end(done);
    }
    ready.add();
    int excluded = 3;
    ncclComm_t smaller = nullptr;
    const auto begin = std::chrono::steady_clock::now();
    const ncclResult_t result = ncclCommShrink(comm, &excluded, 1, &smaller, nullptr, NCCL_SHRINK_ABORT);
    const std::string sentence = ncclGetLastError(nullptr);
    done.add();
    expect_that(result != ncclSuccess && smaller == nullptr, "shrunk without the victim");
    expect_that(std::chrono::steady_clock::now() - begin < kInTime, "it took too long");
    expect_that(sentence.find("rank " + std::to_string(victim) + " (host") != std::string::npos, "lacks the victim");
    expect_that(sentence.find(fate) != std::string::npos, std::string("lacks '") + fate + "'");
    EXPECT_CALL(ncclCommAbort(comm));
  });
}

TEST(Leaving, ShrinkHearsOfTheDeathOfItsLeader) {
  EXPECT_EQ(killed(0) + killed(3), shrink_while(
                                       0,
                                       [](const SharedCount&) {
                                         std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                         raise(SIGKILL);
                                       },
                                       "dead"));
}

TEST(Leaving, ShrinkHearsOfTheDeathOfAMember) {
  EXPECT_EQ(killed(2) + killed(3), shrink_while(
                                       2,
                                       [](const SharedCount&) {
                                         std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                         raise(SIGKILL);
                                       },
                                       "dead"));
}

TEST(Leaving, ShrinkNamesAStoppedLeaderWhenTheTimeIsOver) {
  setenv("NITINOL_INIT_TIMEOUT", "2", 1);
  EXPECT_EQ(killed(0) + killed(3), shrink_while(
                                       0,
                                       [](const SharedCount& done) {
                                         be_killed_after(done, 2);
                                         raise(SIGSTOP);
                                       },
                                       "stopped (SIGSTOP"));
  unsetenv("NITINOL_INIT_TIMEOUT");
}

}  // namespace
}  // namespace nitinol::testing
