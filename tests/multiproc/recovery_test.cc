// Ranks die in the middle of collectives, one after the other or several at once; those who live shrink each time and
// go on with right results, and hold no more in the end than in the beginning.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "held.h"
#include "nccl.h"
#include "observe.h"
#include "pipe.h"
#include "scarcity.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kProcesses = 7;
constexpr int kLeft = 2;
constexpr int kCount = 4000;

/// Sums i + rank over the communicator; false if it has failed.
bool reduce(ncclComm_t comm, int rank, int ranks, int* data) {
  std::vector<int> values(kCount);
  for (int i = 0; i < kCount; ++i) values[static_cast<size_t>(i)] = i + rank;
  EXPECT_CALL(cudaMemcpy(data, values.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
  if (ncclAllReduce(data, data, kCount, ncclInt, ncclSum, comm, nullptr) != ncclSuccess) return false;
  EXPECT_CALL(cudaDeviceSynchronize());
  ncclResult_t state = ncclSuccess;
  EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
  if (state != ncclSuccess) return false;
  EXPECT_CALL(cudaMemcpy(values.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) {
    const int wanted = ranks * i + ranks * (ranks - 1) / 2;
    if (values[static_cast<size_t>(i)] == wanted) continue;
    // A failure that came in the middle leaves anything; then the state tells in a moment.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
    if (state == ncclSuccess) throw std::runtime_error("wrong result of a healthy communicator");
    return false;
  }
  return true;
}

void live(int process, const ncclUniqueId& id) {
  ncclComm_t comm = nullptr;
  int* data = nullptr;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), kCount * sizeof(int)));
  EXPECT_CALL(ncclCommInitRank(&comm, kProcesses, id, process));
  int threads = 0;
  int descriptors = 0;
  for (int ranks = kProcesses; ranks > kLeft; --ranks) {
    const int victim = ranks - 1;
    for (int i = 0; i < 10; ++i) {
      if (!reduce(comm, process, ranks, data)) throw std::runtime_error("failed without a death");
    }
    if (ranks == kProcesses) {
      threads = entries_of("/proc/self/task");
      descriptors = entries_of("/proc/self/fd");
    }
    if (!reduce(comm, process, ranks, data) && process == victim) throw std::runtime_error("the victim failed");
    if (process == victim) {
      std::thread([] { raise(SIGKILL); }).detach();
      while (true) static_cast<void>(reduce(comm, process, ranks, data));
    }
    while (reduce(comm, process, ranks, data)) {
    }
    int excluded = victim;
    ncclComm_t smaller = nullptr;
    EXPECT_CALL(ncclCommShrink(comm, &excluded, 1, &smaller, nullptr, NCCL_SHRINK_ABORT));
    EXPECT_CALL(ncclCommAbort(comm));
    comm = smaller;
  }
  for (int i = 0; i < 10; ++i) {
    if (!reduce(comm, process, kLeft, data)) throw std::runtime_error("the last ones failed");
  }
  // Connections are closed by a service thread, some after a few seconds; threads of virtual GPUs end when they have
  // had nothing to do for two.
  const auto descriptors_leak = [&] { return entries_of("/proc/self/fd") > descriptors; };
  const auto threads_leak = [&] { return entries_of("/proc/self/task") > threads; };
  for (int i = 0; i < 10'000 && (descriptors_leak() || threads_leak()); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (descriptors_leak()) throw std::runtime_error("descriptors leak");
  if (threads_leak()) throw std::runtime_error("threads leak");
  EXPECT_CALL(ncclCommDestroy(comm));
  EXPECT_CALL(cudaFree(data));
}

// NITINOL_TEST_RECOVERIES: how often; each is five deaths.
TEST(Recovery, SurvivorsShrinkAndGoOnUntilTwoAreLeft) {
  std::string wanted;
  for (int i = kLeft; i < kProcesses; ++i) wanted += "process " + std::to_string(i) + " ended by signal 9\n";
  const char* const wish = getenv("NITINOL_TEST_RECOVERIES");
  const int rounds = wish != nullptr ? std::atoi(wish) : 2;
  for (int round = 0; round < rounds; ++round) EXPECT_EQ(run_processes(kProcesses, live), wanted) << round;
}

constexpr int kSurvivors = 2;
constexpr int kMostFresh = 3;
/// Cycles after which nothing is there for the first time any more, and the library keeps as many of the communicators
/// that were destroyed as it ever does.
constexpr int kWarmUp = kMemoryCanBeLimited ? 35 : 10;
constexpr int kCycles = kMemoryCanBeLimited ? 100 : 20;

/// What survivors tell the process that forks: how many ranks are to join them. None: the test is over.
struct Invitation {
  ncclUniqueId id{};
  int fresh = 0;
};

/// A rank that only lives to be killed. It has joined once it has reduced.
[[noreturn]] void reduce_until_killed(const Invitation& invitation, int rank, const SharedCount& joined) {
  try {
    const int ranks = kSurvivors + invitation.fresh;
    ncclComm_t comm = nullptr;
    int* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), kCount * sizeof(int)));
    EXPECT_CALL(ncclCommInitRank(&comm, ranks, invitation.id, rank));
    if (!reduce(comm, rank, ranks, data)) throw std::runtime_error("failed before anybody was killed");
    joined.add();
    while (true) static_cast<void>(reduce(comm, rank, ranks, data));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fresh rank %d: %s\n", rank, error.what());
    _exit(1);
  }
}

/// Forks who is to join the survivors, from a process that holds nothing of the library, and kills them all at once.
void bring_and_kill(const Pipe& invitations, const SharedCount& joined) {
  Invitation invitation;
  int all = 0;
  while (invitations.get(&invitation, sizeof(invitation)) && invitation.fresh > 0) {
    std::vector<pid_t> children;
    for (int i = 0; i < invitation.fresh; ++i) {
      const pid_t child = fork();
      if (child == 0) reduce_until_killed(invitation, kSurvivors + i, joined);
      children.push_back(child);
    }
    all += invitation.fresh;
    joined.wait_for(all);
    for (const pid_t child : children) kill(child, SIGKILL);
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      if (!WIFSIGNALED(status)) throw std::runtime_error("a fresh rank ended by itself");
    }
  }
}

/// One life of a communicator: fresh ranks come, reduce, and die; the survivors go on without them.
void survive(const Invitation& invitation, int rank, int* data) {
  const int ranks = kSurvivors + invitation.fresh;
  ncclComm_t comm = nullptr;
  EXPECT_CALL(ncclCommInitRank(&comm, ranks, invitation.id, rank));
  while (reduce(comm, rank, ranks, data)) {
  }
  std::vector<int> dead(static_cast<size_t>(invitation.fresh));
  std::iota(dead.begin(), dead.end(), kSurvivors);
  ncclComm_t smaller = nullptr;
  EXPECT_CALL(ncclCommShrink(comm, dead.data(), invitation.fresh, &smaller, nullptr, NCCL_SHRINK_ABORT));
  for (int i = 0; i < 3; ++i) {
    if (!reduce(smaller, rank, kSurvivors, data)) throw std::runtime_error("the survivors failed");
  }
  EXPECT_CALL(ncclCommDestroy(smaller));
  EXPECT_CALL(ncclCommDestroy(comm));
}

struct Pipes {
  Pipe to_other;     // from survivor 0 to the other
  Pipe invitations;  // from survivor 0 to the process that forks
};

void survive_cycles(int cycles, int rank, const Pipes& pipes) {
  int* data = nullptr;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), kCount * sizeof(int)));
  Held before;
  for (int cycle = 1; cycle <= cycles; ++cycle) {
    Invitation invitation;
    if (rank == 0) {
      EXPECT_CALL(ncclGetUniqueId(&invitation.id));
      invitation.fresh = 1 + cycle % kMostFresh;
      pipes.to_other.put(&invitation, sizeof(invitation));
      pipes.invitations.put(&invitation, sizeof(invitation));
    } else if (!pipes.to_other.get(&invitation, sizeof(invitation))) {
      throw std::runtime_error("survivor 0 did not come");
    }
    survive(invitation, rank, data);
    if (cycle == std::min(kWarmUp, std::max(1, cycles / 2))) before = held_in_quiet();
  }
  const Invitation no_more;
  if (rank == 0) pipes.invitations.put(&no_more, sizeof(no_more));
  const std::string grown = grown_since(before);
  if (!grown.empty()) throw std::runtime_error(grown);
  EXPECT_CALL(cudaFree(data));
}

// NITINOL_TEST_RECOVERY_CYCLES: how many.
TEST(Recovery, TwoSurvivorsOfManyCommunicatorsHoldNoMoreThanOfTheFirstOnes) {
  const char* const wish = getenv("NITINOL_TEST_RECOVERY_CYCLES");
  const int cycles = wish != nullptr ? std::atoi(wish) : kCycles;
  const Pipes pipes;
  const SharedCount joined;
  const std::set<std::string> files = files_of_the_library();
  EXPECT_EQ("", run_processes(kSurvivors + 1, [&](int process, const ncclUniqueId&) {
              if (process == kSurvivors) return bring_and_kill(pipes.invitations, joined);
              survive_cycles(cycles, process, pipes);
            }));
  EXPECT_EQ(files, files_of_the_library());
}

}  // namespace
}  // namespace nitinol::testing
