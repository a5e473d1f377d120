// Ranks die one after the other in the middle of collectives; those who live shrink each time and go on with right
// results, and hold no more in the end than in the beginning.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nccl.h"
#include "observe.h"

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

}  // namespace
}  // namespace nitinol::testing
