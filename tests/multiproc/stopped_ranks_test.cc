// A rank's process is stopped (SIGSTOP) while others wait for it on the host, directly or through others: all are told
// of that rank in the time that is set for operations, and those who are left go on together.
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
#include "nccl.h"
#include "observe.h"
#include "shared.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr std::chrono::seconds kInTime{60};  // far above NITINOL_TIMEOUT, and far below NITINOL_INIT_TIMEOUT

constexpr std::chrono::hours kForEver{1};

std::string killed(int process) { return "process " + std::to_string(process) + " ended by signal 9\n"; }

/// Operations, and what waits as long as they, have this many seconds.
class Timeout {
 public:
  explicit Timeout(int seconds) { setenv("NITINOL_TIMEOUT", std::to_string(seconds).c_str(), 1); }
  ~Timeout() { unsetenv("NITINOL_TIMEOUT"); }
  Timeout(const Timeout&) = delete;
  Timeout& operator=(const Timeout&) = delete;
};

/// The process that is stopped, as all see it.
class Victim {
 public:
  /// By a process of its own, which ends this one once so many others are done.
  void stop_self_after(Milliseconds delay, int others) const {
    *pid_ = getpid();
    if (fork() != 0) return;
    std::this_thread::sleep_for(delay);
    kill(*pid_, SIGSTOP);
    done_.wait_for(others);
    kill(*pid_, SIGKILL);
    _exit(0);
  }
  void wait_until_stopped() const {
    while (*pid_ == 0 || !is_stopped(*pid_)) std::this_thread::sleep_for(Milliseconds(1));
  }
  void say_done() const { done_.add(); }
  /// Throws unless the sentence says that it is stopped.
  void must_be_named(const std::string& sentence) const {
    const bool names = sentence.find("pid " + std::to_string(*pid_) + ",") != std::string::npos ||
                       sentence.find("pid " + std::to_string(*pid_) + ")") != std::string::npos;
    expect_that(names && sentence.find("stopped (SIGSTOP") != std::string::npos,
                "does not name who is stopped: " + sentence);
  }

 private:
  Shared<std::atomic<pid_t>> pid_;
  SharedCount done_;
};

void must_have_been_in_time(Clock::time_point begin) {
  expect_that(Clock::now() - begin < kInTime, "it took too long");
}

ncclResult_t reduce(ncclComm_t comm) {
  constexpr size_t kCount = 64;
  float* data = nullptr;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), kCount * sizeof(float)));
  static_cast<void>(ncclAllReduce(data, data, kCount, ncclFloat, ncclSum, comm, nullptr));
  EXPECT_CALL(cudaDeviceSynchronize());
  EXPECT_CALL(cudaFree(data));
  return state_of(comm);
}

constexpr int kRanks = 4;
constexpr int kExcluded = 3;

/// Without rank 3, and a use of what it makes.
ncclResult_t shrink_and_reduce(ncclComm_t comm, int flags, ncclComm_t* child) {
  int excluded = kExcluded;
  const ncclResult_t result = ncclCommShrink(comm, &excluded, 1, child, nullptr, flags);
  return result == ncclSuccess ? reduce(*child) : result;
}

/// What it comes to is as may be: the others may have given up before it is stopped.
[[noreturn]] void shrink_until_stopped(ncclComm_t comm, int flags) {
  ncclComm_t child = nullptr;
  static_cast<void>(shrink_and_reduce(comm, flags, &child));
  while (true) std::this_thread::sleep_for(kForEver);
}

/// It may fail because of the victim alone. What was made is ended when `all_have_tried`.
void shrink_and_reduce_or_name(ncclComm_t comm, int flags, const Victim& victim, bool must_fail,
                               const std::function<void()>& all_have_tried) {
  const auto begin = Clock::now();
  ncclComm_t child = nullptr;
  const ncclResult_t result = shrink_and_reduce(comm, flags, &child);
  must_have_been_in_time(begin);
  expect_that(result == ncclRemoteError || (result == ncclSuccess && !must_fail), "code " + std::to_string(result));
  if (result != ncclSuccess) victim.must_be_named(ncclGetLastError(child != nullptr ? child : comm));
  all_have_tried();
  if (child != nullptr) EXPECT_CALL(ncclCommAbort(child));
}

void shrink_without(ncclComm_t comm, std::vector<int> excluded) {
  ncclComm_t child = nullptr;
  EXPECT_CALL(
      ncclCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), &child, nullptr, NCCL_SHRINK_ABORT));
  EXPECT_CALL(reduce(child));
  EXPECT_CALL(ncclCommDestroy(child));
}

struct Shrink {
  int victim = 0;
  int flags = NCCL_SHRINK_DEFAULT;
  Milliseconds delay{-1};  ///< negative: it is stopped before anybody calls
};

/// Rank 3 is left out, and one of those who are to stay is stopped. Returns what went wrong.
std::string shrink_beside_a_stopped_member(const Shrink& c) {
  const Victim victim;
  const SharedCount joined;
  const SharedCount tried;
  const SharedCount over;
  constexpr int kOthers = kRanks - 1;
  constexpr int kLeft = kRanks - 2;
  const std::string ends = run_processes(kRanks, [&](int process, const ncclUniqueId& id) {
    ncclComm_t comm = nullptr;
    use_device_of(process);
    EXPECT_CALL(ncclCommInitRank(&comm, kRanks, id, process));
    EXPECT_CALL(reduce(comm));
    joined.meet(kRanks);
    const bool before = c.delay.count() < 0;
    if (process == c.victim) {
      victim.stop_self_after(before ? Milliseconds(0) : c.delay, kOthers);
      if (before) std::this_thread::sleep_for(kForEver);
      shrink_until_stopped(comm, c.flags);
    }
    if (before) victim.wait_until_stopped();
    if (process == kExcluded) {
      over.wait_for(kLeft);
    } else {
      shrink_and_reduce_or_name(comm, c.flags, victim, before, [&] { tried.meet(kLeft); });
      victim.wait_until_stopped();
      shrink_without(comm, {c.victim, kExcluded});
      over.add();
    }
    victim.say_done();
    EXPECT_CALL(ncclCommAbort(comm));
  });
  if (ends == killed(c.victim)) return "";
  return "rank " + std::to_string(c.victim) + ", flags " + std::to_string(c.flags) + ", after " +
         std::to_string(c.delay.count()) + " ms: " + ends;
}

std::string shrink_beside_stopped_members(const std::vector<Milliseconds>& delays) {
  std::vector<std::function<std::string()>> cases;
  for (const int victim : {0, 1}) {  // 0 leads, as the lowest rank that is left
    for (const int flags : {NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT}) {
      for (const Milliseconds delay : delays) {
        cases.emplace_back([=] { return shrink_beside_a_stopped_member({victim, flags, delay}); });
      }
    }
  }
  return run_at_once(cases);
}

TEST(StoppedRanks, AMemberOfAShrinkIsNamedInTheTimeOfOperations) {
  const Timeout timeout(3);
  EXPECT_EQ("", shrink_beside_stopped_members({Milliseconds(-1)}));
}

TEST(StoppedRanks, AMemberOfAShrinkIsNamedWhereverItIsInIt) {
  const Timeout timeout(3);
  EXPECT_EQ("", shrink_beside_stopped_members({Milliseconds(1), Milliseconds(5), Milliseconds(20)}));
}

/// The tree of six: ranks 1 to 4 are below rank 0, and rank 5 below rank 1.
constexpr int kInTree = 6;

struct Wait {
  int victim = 1;
  int early = 0;  ///< waits for a neighbour that itself waits for the victim, and its time is over before
};

using Call = ncclResult_t (*)(ncclComm_t comm);

/// The victim is stopped while the others come to a call, one of them earlier. Returns what went wrong.
std::string wait_through_others(const Wait& c, Call call) {
  constexpr Milliseconds kEarlier{2000};
  const Victim victim;
  const SharedCount joined;
  const std::string ends = run_processes(kInTree, [&](int process, const ncclUniqueId& id) {
    ncclComm_t comm = nullptr;
    use_device_of(process);
    EXPECT_CALL(ncclCommInitRank(&comm, kInTree, id, process));
    joined.meet(kInTree);
    if (process == c.victim) {
      victim.stop_self_after(Milliseconds(0), kInTree - 1);
      std::this_thread::sleep_for(kForEver);
    }
    victim.wait_until_stopped();
    if (process != c.early) std::this_thread::sleep_for(kEarlier);
    const auto begin = Clock::now();
    const ncclResult_t result = call(comm);
    const std::string sentence = ncclGetLastError(comm);
    must_have_been_in_time(begin);
    victim.say_done();
    expect_that(result == ncclRemoteError, "code " + std::to_string(result));
    victim.must_be_named(sentence);
    EXPECT_CALL(ncclCommAbort(comm));
  });
  if (ends == killed(c.victim)) return "";
  return "rank " + std::to_string(c.victim) + ", rank " + std::to_string(c.early) + " is early: " + ends;
}

ncclResult_t split(ncclComm_t comm) {
  ncclComm_t child = nullptr;
  return ncclCommSplit(comm, 0, 0, &child, nullptr);
}

TEST(StoppedRanks, OnesThatHoldUpWhomOthersWaitForAreNamed) {
  const Timeout timeout(3);
  std::vector<std::function<std::string()>> cases;
  for (const Wait& wait : {Wait{5, 0}, {1, 2}, {0, 5}}) {
    for (const Call call : {split, ncclCommFinalize}) {
      cases.emplace_back([=] { return wait_through_others(wait, call); });
    }
  }
  EXPECT_EQ("", run_at_once(cases));
}

/// While the others wait for that process to answer, or to let them in.
TEST(StoppedRanks, TheProcessThatMadeTheUniqueIdIsNamed) {
  setenv("NITINOL_INIT_TIMEOUT", "5", 1);
  constexpr int kOthers = 2;
  const Victim victim;
  EXPECT_EQ(killed(0), run_processes(1 + kOthers, [&](int process, const ncclUniqueId& id) {
              use_device_of(process);
              if (process == 0) {
                victim.stop_self_after(Milliseconds(2000), kOthers);
                std::this_thread::sleep_for(kForEver);
              }
              if (process == 2) victim.wait_until_stopped();
              const auto begin = Clock::now();
              ncclComm_t comm = nullptr;
              const ncclResult_t result = ncclCommInitRank(&comm, 1 + kOthers, id, process);
              const std::string sentence = ncclGetLastError(nullptr);
              must_have_been_in_time(begin);
              victim.say_done();
              expect_that(result != ncclSuccess, "it was made");
              expect_that(sentence.find("stopped (SIGSTOP") != std::string::npos, sentence);
            }));
  unsetenv("NITINOL_INIT_TIMEOUT");
}

}  // namespace
}  // namespace nitinol::testing
