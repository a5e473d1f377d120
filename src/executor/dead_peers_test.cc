#include "executor/dead_peers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <vector>

namespace nitinol {
namespace {

using namespace std::chrono_literals;
constexpr auto kRuns = ProcessState::kRunning;
constexpr auto kDead = ProcessState::kDead;

class DeadPeersTest : public testing::Test {
 protected:
  /// At this moment, with such processes, of a rank that waits for one alone.
  std::optional<int> look(std::chrono::milliseconds at, const std::vector<ProcessState>& states, int awaited) {
    const auto state_of = [&](int rank) { return states[static_cast<size_t>(rank)]; };
    const auto is_awaited = [&](int rank) { return rank == awaited; };
    return dead_peers_.look(static_cast<int>(states.size()), begin_ + at, state_of, is_awaited);
  }

 private:
  DeadPeers dead_peers_;
  const DeadPeers::Clock::time_point begin_ = DeadPeers::Clock::now();
};

TEST_F(DeadPeersTest, OneThatIsWaitedForIsToldWhenWordOfItCouldHaveCome) {
  EXPECT_EQ(look(0ms, {kRuns, kDead, kDead}, 2), std::nullopt);
  EXPECT_EQ(look(600ms, {kRuns, kDead, kDead}, 2), std::nullopt);
  EXPECT_EQ(look(1200ms, {kRuns, kDead, kDead}, 2), 2);
}

TEST_F(DeadPeersTest, OthersAreNoMatterWhileWordsTravel) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(look(i * 1s, {kRuns, kDead, kRuns}, 2), std::nullopt);
}

TEST_F(DeadPeersTest, OthersAreToldWhereOneIsStoppedThatMayWaitForThem) {
  EXPECT_EQ(look(0ms, {kRuns, kDead, ProcessState::kStopped}, 2), std::nullopt);
  EXPECT_EQ(look(1200ms, {kRuns, kDead, ProcessState::kStopped}, 2), 1);
}

TEST_F(DeadPeersTest, ThePatienceBeginsAnewWhenNoneIsDead) {
  EXPECT_EQ(look(0ms, {kRuns, kDead}, 1), std::nullopt);
  EXPECT_EQ(look(600ms, {kRuns, kRuns}, 1), std::nullopt);
  EXPECT_EQ(look(1200ms, {kRuns, kDead}, 1), std::nullopt);
  EXPECT_EQ(look(2200ms, {kRuns, kDead}, 1), 1);
}

}  // namespace
}  // namespace nitinol
