// Graphs of ended communicators that wait for a rank that is late or dead. Needs no GPU: see call_watch_test.cc.
#include "executor/cuda/left_graphs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>

#include "base/last_error.h"
#include "base/process_state.h"
#include "executor/cuda/domain.h"

namespace nitinol::cuda {
namespace {

using ::testing::HasSubstr;

/// Of two ranks, of which the other is in this process or not.
class LeftRank {
 public:
  explicit LeftRank(const Peer& other) : domain_(setup(other), Layouts{}) {
    domain_.close();
    domain_.look_after_graphs(std::chrono::seconds(4));
  }

  volatile Signals& signals() { return domain_.signals(); }
  std::string warning() {
    const std::lock_guard lock(mutex_);
    return warning_;
  }

 private:
  ExecutorSetup setup(const Peer& other) {
    ExecutorSetup setup;
    setup.peers = {Peer{}, other};
    setup.identity = {99, 7};
    setup.warned = [this](const std::string& warning) {
      const std::lock_guard lock(mutex_);
      warning_ = warning;
    };
    return setup;
  }

  std::mutex mutex_;
  std::string warning_;
  Domain domain_;
};

/// A process that is there no more.
Peer dead_peer() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  Peer peer;
  peer.process = 1;
  peer.pid = child;
  peer.pid_namespace = pid_namespace();
  return peer;
}

TEST(LeftGraphs, OfARankThatAnotherIsTooLateForEndAndAreTold) {
  LeftRank left(Peer{});
  EXPECT_EQ(left.signals().patience, 3815U);  // of 2^20 ns
  left.signals().late[1] = 1;
  while (left.warning().empty()) std::this_thread::yield();
  EXPECT_NE(left.signals().aborted, 0U);
  EXPECT_THAT(left.warning(), HasSubstr("no progress for 4000 ms (NITINOL_TIMEOUT); nothing came from: rank 1 (host "));
  EXPECT_THAT(left.warning(), HasSubstr("; its communicator has ended"));
  EXPECT_EQ(left.warning(), last_error());
}

TEST(LeftGraphs, ThatWaitForADeadProcessEndAndAreTold) {
  LeftRank left(dead_peer());
  for (uint32_t milliseconds = 200; left.warning().empty(); ++milliseconds) {
    left.signals().waits[Signals::kOfCollectives].for_data[1] = milliseconds;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_NE(left.signals().aborted, 0U);
  EXPECT_THAT(left.warning(), HasSubstr("but the process of rank 1 (host "));
}

}  // namespace
}  // namespace nitinol::cuda
