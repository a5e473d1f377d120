// What others see of a rank, and what its flight recorder is told: how far its launches have come, whatever is in them.
#include "executor/cpu/watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "executor/cpu/team_testing.h"

namespace nitinol::cpu {
namespace {

using Direction = MessageWork::Direction;

constexpr StreamName kStream{5, 0};
constexpr std::chrono::milliseconds kLimit{800};
constexpr std::chrono::milliseconds kPatience{1000};

/// Whether one that has waited since then says itself what others know better.
bool has_lost_patience(std::chrono::steady_clock::time_point start) {
  return std::chrono::steady_clock::now() - start >= kLimit + kPatience;
}

Launch message(Direction direction, int peer, int& value) {
  return Launch{.collectives = {}, .messages = {{direction, peer, &value, sizeof value, DataType::kInt32}}};
}

std::unique_ptr<Kernel> issued(Engine& engine, const Launch& launch, const StreamName& stream = kStream) {
  engine.rank().prepare(launch);
  return engine.make_kernel(launch, {.main = stream});
}

std::string words_of(Engine& engine) { return words_for_doings(look_at(engine.rank().arena())); }

TEST(Watch, TellsHowFarMessagesHaveCome) {
  Team team(2);
  Engine& receiver = *team.engine(1);
  int sent = 42;
  int received = 0;
  const auto passed = [&] { return passed_of(receiver.rank().arena(), 2); };
  const auto receive = issued(receiver, message(Direction::kReceive, 0, received));
  EXPECT_EQ(passed().launches, 0U);
  EXPECT_EQ(passed().begun, 0U);
  EXPECT_EQ(words_of(receiver), "it has issued 1 launch that has not begun, it has not begun any collective");
  std::thread runs([&] { receive->run(); });
  while (passed().awaited.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(passed().launches, 0U);
  EXPECT_EQ(passed().begun, 1U);
  ASSERT_EQ(passed().awaited.size(), 1U);
  EXPECT_EQ(passed().awaited[0].text(), "Recv number 1 from rank 0 (count 1, type int32)");
  EXPECT_EQ(words_of(receiver), "it is in a group of sends and receives, it has not begun any collective");
  issued(*team.engine(0), message(Direction::kSend, 1, sent))->run();
  runs.join();
  EXPECT_EQ(received, 42);
  EXPECT_EQ(passed().launches, 1U);
  EXPECT_TRUE(passed().awaited.empty());
  EXPECT_EQ(words_of(receiver), "idle, it has not begun any collective, but ended 1 launch of sends and receives");
}

/// On a thread of its own, which ends when the call fails.
std::thread receiving(Engine& engine, const std::vector<int>& peers, std::vector<int>& values) {
  Launch launch;
  for (const int peer : peers) {
    int& value = values[static_cast<size_t>(peer)];
    launch.messages.push_back({Direction::kReceive, peer, &value, sizeof value, DataType::kInt32});
  }
  engine.rank().prepare(launch);
  return std::thread([&engine, launch] { engine.make_kernel(launch, {.main = kStream})->run(); });
}

/// Whoever waits looks now and then what it waits for.
void await_looks(Engine& engine, uint64_t count) {
  while (engine.rank().arena().header().looks.load() < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// The other rank may have failed only because of the first.
TEST(Watch, NamesTheRankThatStoppedFirst) {
  Team team(3);
  std::vector<int> values(3);
  team.engine(2)->rank().abort();
  std::thread waits = receiving(*team.engine(1), {0, 2}, values);
  await_looks(*team.engine(1), 2);  // the first is over
  team.engine(0)->rank().abort();
  waits.join();
  ASSERT_EQ(team.failures().size(), 1U);
  EXPECT_NE(team.failures()[0].find("but rank 2 (host "), std::string::npos) << team.failures()[0];
}

TEST(Watch, LeavesItToTheRankThatWaitsForTheMissingOneToNameIt) {
  Team team(3);
  std::vector<int> values(3);
  const auto start = std::chrono::steady_clock::now();
  std::thread first = receiving(*team.engine(0), {1}, values);
  await_looks(*team.engine(0), 1);
  std::thread second = receiving(*team.engine(1), {2}, values);
  await_looks(*team.engine(1), 1);
  for (const int rank : {0, 1}) team.engine(rank)->rank().set_timeout(kLimit);
  first.join();
  second.join();
  ASSERT_FALSE(team.failures().empty());
  const bool named = team.failures()[0].find("waiting for: Recv number 1 from rank 2") != std::string::npos;
  EXPECT_TRUE(named || has_lost_patience(start)) << team.failures()[0];
}

/// It may wait for a third, which it knows to be stopped.
TEST(Watch, LeavesItToARankOnItsWayIntoACallToNameTheMissingOne) {
  Team team(2);
  std::vector<int> values(2);
  team.engine(0)->rank().set_timeout(kLimit);
  std::atomic<uint32_t>& reaching = team.engine(1)->rank().arena().header().reaching;
  reaching.store(1);
  EXPECT_NE(words_of(*team.engine(1)).find("about to make a call"), std::string::npos);
  const auto start = std::chrono::steady_clock::now();
  std::thread waits = receiving(*team.engine(0), {1}, values);
  std::this_thread::sleep_for(kLimit + kPatience / 2);
  const bool told = !team.failures().empty();
  EXPECT_TRUE(!told || has_lost_patience(start));
  reaching.store(0);
  waits.join();
  ASSERT_EQ(team.failures().size(), 1U);
  EXPECT_NE(team.failures()[0].find("waiting for: Recv number 1 from rank 1"), std::string::npos) << team.failures()[0];
}

// Why is told over the tree, perhaps a moment later than the own time is over.
TEST(Watch, LeavesItToARankThatHasFailedToSayWhy) {
  Team team(2);
  std::vector<int> values(2);
  const auto start = std::chrono::steady_clock::now();
  std::thread waits = receiving(*team.engine(0), {1}, values);
  await_looks(*team.engine(0), 1);
  team.engine(1)->rank().abort();
  team.engine(0)->rank().set_timeout(kLimit);
  waits.join();
  ASSERT_EQ(team.failures().size(), 1U);
  const bool named = team.failures()[0].find("but rank 1 (host ") != std::string::npos;
  EXPECT_TRUE(named || has_lost_patience(start)) << team.failures()[0];
}

TEST(Watch, ClaimsNothingOfGraphs) {
  Team team(2);
  int value = 0;
  Engine& engine = *team.engine(0);
  const auto captured = issued(engine, message(Direction::kSend, 1, value), {});
  EXPECT_EQ(passed_of(engine.rank().arena(), 2).launches, std::nullopt);
  EXPECT_EQ(passed_of(engine.rank().arena(), 2).begun, std::nullopt);
  EXPECT_EQ(words_of(engine), "it has not begun any collective") << "a graph may stand in a stream";
}

}  // namespace
}  // namespace nitinol::cpu
