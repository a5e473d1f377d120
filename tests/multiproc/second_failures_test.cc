// Something else goes wrong while the ranks handle a first failure: who waits is told of the right rank soon, and those
// who are left can go on together.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "must_work.h"
#include "nccl.h"
#include "nitinol.h"
#include "observe.h"
#include "shared.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kInTime{20};            // far above what it takes, and far below NITINOL_INIT_TIMEOUT
constexpr std::chrono::milliseconds kOnTheirWay{300};  // so that it mostly strikes who is in a call

std::string killed(int process) { return "process " + std::to_string(process) + " ended by signal 9\n"; }

/// One process for each rank, with a communicator of all; some of them end as `ends` says.
void run_ranks(int ranks, const std::string& ends, const std::function<void(int rank, ncclComm_t comm)>& run) {
  const SharedCount joined;
  EXPECT_EQ(ends, run_processes(ranks, [&](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              use_device_of(process);
              EXPECT_CALL(ncclCommInitRank(&comm, ranks, id, process));
              joined.meet(ranks);
              run(process, comm);
            }));
}

/// Leaves out these ranks, in abort mode.
ncclResult_t shrink(ncclComm_t comm, std::vector<int> excluded, ncclComm_t* child) {
  return ncclCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), child, nullptr, NCCL_SHRINK_ABORT);
}

/// It fails soon, with these words.
void must_not_shrink(ncclComm_t comm, const std::vector<int>& excluded, const std::string& words) {
  ncclComm_t child = nullptr;
  const auto begin = Clock::now();
  const ncclResult_t result = shrink(comm, excluded, &child);
  const bool in_time = Clock::now() - begin < kInTime;
  const std::string sentence = ncclGetLastError(comm);
  expect_that(result == ncclRemoteError && child == nullptr, "code " + std::to_string(result) + ": " + sentence);
  expect_that(sentence.find(words) != std::string::npos, "'" + sentence + "' lacks '" + words + "'");
  expect_that(in_time, "it took too long");
}

void must_shrink(ncclComm_t comm, const std::vector<int>& excluded, int rank, int ranks) {
  ncclComm_t child = nullptr;
  EXPECT_CALL(shrink(comm, excluded, &child));
  expect_place(child, rank, ranks);
  EXPECT_CALL(ncclCommDestroy(child));
}

/// Rank 3 is dead, and rank 0 leaves while others wait for it. Rank 1 has found that, and waits for rank 2 without
/// both, before rank 2 looks.
TEST(SecondFailure, OfAMemberThatLeavesIsNoContradictionBetweenThoseWhoFindItSoonerAndLater) {
  const SharedCount found;
  const SharedCount through;
  run_ranks(4, killed(3), [&](int rank, ncclComm_t comm) {
    if (rank == 3) raise(SIGKILL);
    wait_in_vain(comm);
    if (rank == 0) {
      EXPECT_CALL(ncclCommAbort(comm));
      return through.wait_for(2);
    }
    if (rank == 2) found.wait_for(1);
    must_not_shrink(comm, {3}, "rank 0 (host ");
    if (rank == 1) found.add();
    must_shrink(comm, {0, 3}, rank - 1, 2);
    through.add();
    EXPECT_CALL(ncclCommAbort(comm));
  });
}

/// Rank 2 dies while the others, who wait for it in an operation, finalize; rank 1, whose process lives on with another
/// communicator, ends its own.
TEST(SecondFailure, OfAMemberThatEndsWhatItCouldNotFinalizeIsToldToThoseWhoShrinkWithIt) {
  const SharedCount finalizing;
  const SharedCount left;
  const SharedCount through;
  run_ranks(3, killed(2), [&](int rank, ncclComm_t another) {
    ncclComm_t comm = nullptr;
    float* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
    EXPECT_CALL(ncclCommSplit(another, 0, rank, &comm, nullptr));
    if (rank == 2) {
      finalizing.wait_for(2);
      std::this_thread::sleep_for(kOnTheirWay);
      raise(SIGKILL);
    }
    EXPECT_CALL(ncclAllReduce(data, data, 10, ncclFloat, ncclSum, comm, nullptr));
    finalizing.add();
    expect_that(ncclCommFinalize(comm) == ncclRemoteError, "finalized all the same");
    if (rank == 1) {
      EXPECT_CALL(ncclCommAbort(comm));
      left.add();
      through.wait_for(1);
    } else {
      left.wait_for(1);
      must_not_shrink(comm, {2}, ") has left the communicator");
      through.add();
      EXPECT_CALL(ncclCommAbort(comm));
    }
    EXPECT_CALL(ncclCommAbort(another));
  });
}

constexpr size_t kCount = 64;

class Data {
 public:
  Data() { EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&at_), 2 * kCount * sizeof(float))); }
  ~Data() { static_cast<void>(cudaFree(at_)); }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  float* first() const { return at_; }
  float* second() const { return at_ + kCount; }

 private:
  float* at_ = nullptr;
};

/// Each rank sends to the next one and receives from the one before.
void pass_on(ncclComm_t comm, int rank, int ranks) {
  const Data data;
  EXPECT_CALL(ncclGroupStart());
  static_cast<void>(ncclSend(data.first(), kCount, ncclFloat, (rank + 1) % ranks, comm, nullptr));
  static_cast<void>(ncclRecv(data.second(), kCount, ncclFloat, (rank + ranks - 1) % ranks, comm, nullptr));
  static_cast<void>(ncclGroupEnd());
  EXPECT_CALL(cudaDeviceSynchronize());
}

void pass_on_until_failure(ncclComm_t comm, int rank, int ranks) {
  while (state_of(comm) == ncclSuccess) pass_on(comm, rank, ranks);
}

void reduce(ncclComm_t comm) {
  const Data data;
  static_cast<void>(ncclAllReduce(data.first(), data.first(), kCount, ncclFloat, ncclSum, comm, nullptr));
  EXPECT_CALL(cudaDeviceSynchronize());
}

void reduce_until_failure(ncclComm_t comm, int /*rank*/, int /*ranks*/) {
  while (state_of(comm) == ncclSuccess) reduce(comm);
}

/// Rank 0 is stopped. It passes on no word between the others, of whom all but one wait for others than it.
void stop_who_passes_words_on() {
  constexpr int kRanks = 5;
  const Shared<std::atomic<pid_t>> stopped;
  const SharedCount ready;
  const SharedCount through;
  run_ranks(kRanks, killed(0), [&](int rank, ncclComm_t comm) {
    if (rank == 0) *stopped = getpid();
    ready.meet(kRanks);
    if (rank == 0) raise(SIGSTOP);
    EXPECT_CALL(nitinolCommSetTimeout(comm, 2));
    pass_on_until_failure(comm, rank, kRanks);
    through.meet(kRanks - 1);
    if (rank == 1) kill(*stopped, SIGKILL);
    const std::string sentence = ncclGetLastError(comm);
    const bool names = sentence.find("pid " + std::to_string(*stopped) + ",") != std::string::npos;
    EXPECT_CALL(ncclCommAbort(comm));
    expect_that(names, "the sentence does not name who is stopped: " + sentence);
  });
}

TEST(SecondFailure, OfThoseWhoGiveUpBehindARankThatIsStoppedNamesThatRank) {
  stop_who_passes_words_on();
  setenv("NITINOL_CHECK", "strict", 1);
  stop_who_passes_words_on();
  unsetenv("NITINOL_CHECK");
}

/// Rank 0 is stopped, and rank 3 dies, of whose end it would be the one to tell the others. No time limits their wait.
void die_behind_who_is_stopped(const std::function<void(ncclComm_t comm, int rank, int ranks)>& wait) {
  constexpr int kRanks = 4;
  const Shared<std::atomic<pid_t>> stopped;
  const SharedCount ready;
  const SharedCount waiting;
  const SharedCount through;
  run_ranks(kRanks, killed(0) + killed(3), [&](int rank, ncclComm_t comm) {
    reduce(comm);
    pass_on(comm, rank, kRanks);
    if (rank == 0) *stopped = getpid();
    ready.meet(kRanks);
    if (rank == 0) raise(SIGSTOP);
    if (rank == 3) {
      waiting.wait_for(2);
      while (!is_stopped(*stopped)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(kOnTheirWay);
      raise(SIGKILL);
    }
    waiting.add();
    wait(comm, rank, kRanks);
    through.meet(2);
    if (rank == 1) kill(*stopped, SIGKILL);
    const std::string sentence = ncclGetLastError(comm);
    EXPECT_CALL(ncclCommAbort(comm));
    expect_that(sentence.find("rank 3 (host ") != std::string::npos, "does not name the dead: " + sentence);
  });
}

TEST(SecondFailure, OfARankThatDiesBehindOneThatIsStoppedIsToldToThoseInOperations) {
  die_behind_who_is_stopped(pass_on_until_failure);
  die_behind_who_is_stopped(reduce_until_failure);
}

}  // namespace
}  // namespace nitinol::testing
