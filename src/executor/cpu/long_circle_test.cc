// Ranks of several communicators that use them in different orders in their streams wait for each other in circles that
// no communicator sees as a whole: they are told; ranks that only wait long are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "executor/cpu/team_testing.h"

namespace nitinol::cpu {
namespace {

using Direction = MessageWork::Direction;

/// What one rank puts into its stream: launches on several communicators, which are counted from 0.
struct Step {
  int team = 0;
  Launch launch{};
  std::chrono::milliseconds pause{0};  ///< before it runs
};
using Program = std::vector<Step>;

Step all_reduce(int team, std::chrono::milliseconds pause = {}) {
  CollectiveWork work;
  work.count = 4;
  work.type = work.stated = DataType::kInt32;
  return {team, Launch{.collectives = {work}, .messages = {}}, pause};
}

/// Nobody looks at the results.
void give_buffers(Program& program, std::vector<std::byte>& bytes) {
  for (Step& step : program) {
    for (CollectiveWork& work : step.launch.collectives) work.input = work.output = bytes.data();
    for (MessageWork& message : step.launch.messages) message.buffer = bytes.data();
  }
}

Step message(int team, Direction direction, int peer) {
  return {team, Launch{.collectives = {}, .messages = {{direction, peer, nullptr, 8}}}};
}

/// Runs the ranks' programs, each in a stream of its own. What the first rank says that fails; "" if all come through.
std::string run(std::vector<Program> programs, int teams, Living living = Living::kApart) {
  const int ranks = static_cast<int>(programs.size());
  std::vector<std::unique_ptr<Team>> all;
  for (int i = 0; i < teams; ++i) all.push_back(std::make_unique<Team>(ranks, living, 16384));
  std::atomic<int> running{ranks};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Program& program = programs[static_cast<size_t>(rank)];
      std::vector<std::byte> bytes(4096);
      give_buffers(program, bytes);
      const StreamName stream{static_cast<unsigned long long>(rank), 0};
      std::vector<std::unique_ptr<Kernel>> kernels;
      for (const Step& step : program) {
        Engine& engine = *all[static_cast<size_t>(step.team)]->engine(rank);
        engine.rank().prepare(step.launch);
        kernels.push_back(engine.make_kernel(step.launch, {.main = stream}));
      }
      for (size_t i = 0; i < kernels.size(); ++i) {
        std::this_thread::sleep_for(program[i].pause);
        kernels[i]->run();
        Engine::recycle(std::move(kernels[i]));
      }
      --running;
    });
  }
  const auto first_failure = [&] {
    for (const auto& team : all) {
      if (!team->failures().empty()) return team->failures().front();
    }
    return std::string();
  };
  while (running > 0 && first_failure().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int rank = 0; running > 0 && rank < ranks; ++rank) {
    for (const auto& team : all) team->engine(rank)->rank().abort();
  }
  for (std::thread& thread : threads) thread.join();
  return first_failure();
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST(LongCircle, OfTwoCommunicatorsIsTold) {
  const std::string said = run({{all_reduce(0), all_reduce(1)}, {all_reduce(1), all_reduce(0)}}, 2);
  EXPECT_TRUE(contains(said, "in a circle over several communicators: rank ")) << said;
  EXPECT_TRUE(contains(said, "waits in AllReduce number 1 (count 4, type int32, op sum) for rank ")) << said;
  EXPECT_TRUE(contains(said, "which has it behind AllReduce number 1 (count 4, type int32, op sum) on communicator "))
      << said;
}

TEST(LongCircle, OfMessagesIsTold) {
  const std::string said = run({{message(0, Direction::kReceive, 1), message(1, Direction::kSend, 1)},
                                {message(1, Direction::kReceive, 0), message(0, Direction::kSend, 0)}},
                               2, Living::kTogether);
  EXPECT_TRUE(contains(said, ": rank 0 waits in Recv number 1 from rank 1 (count 8, type uint8) for rank 1 ") ||
              contains(said, ": rank 1 waits in Recv number 1 from rank 0 (count 8, type uint8) for rank 0 "))
      << said;
  EXPECT_TRUE(contains(said, "which has it behind Recv number 1 from rank ")) << said;
}

TEST(LongCircle, OfTwoRanksInOneStreamIsTold) {
  Team team(2);
  std::vector<std::byte> bytes(4096);
  Program program{all_reduce(0), all_reduce(0)};
  give_buffers(program, bytes);
  const StreamName stream{1, 0};
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (int rank = 0; rank < 2; ++rank) {
    team.engine(rank)->rank().prepare(program[static_cast<size_t>(rank)].launch);
    kernels.push_back(team.engine(rank)->make_kernel(program[static_cast<size_t>(rank)].launch, {.main = stream}));
  }
  kernels[0]->run();
  ASSERT_EQ(team.failures().size(), 1U);
  EXPECT_TRUE(contains(team.failures()[0], "for rank 1 (")) << team.failures()[0];
  EXPECT_TRUE(contains(team.failures()[0], "(there rank 0) in its stream")) << team.failures()[0];
}

// Two groups of the second team stand in the stream, but run in others.
TEST(LongCircle, OfLaunchesInSeveralStreamsIsTold) {
  Team one(2);
  Team two(2);
  std::vector<std::byte> bytes(4096);
  Program program{all_reduce(0)};
  give_buffers(program, bytes);
  const Launch& launch = program[0].launch;
  for (Team* team : {&one, &two}) {
    for (int rank = 0; rank < 2; ++rank) team->engine(rank)->rank().prepare(launch);
  }
  const StreamName stream{1, 0};
  const LaunchStreams several{.main = {2, 0}, .joined = {stream}};
  const auto first = one.engine(0)->make_kernel(launch, {.main = stream});
  const auto second = two.engine(0)->make_kernel(launch, several);
  const auto third = two.engine(0)->make_kernel(launch, several);
  const auto waits = two.engine(1)->make_kernel(launch, {.main = {3, 0}});
  const auto behind = one.engine(1)->make_kernel(launch, {.main = {3, 0}});
  std::thread one_thread([&] { first->run(); });
  std::thread other_thread([&] { waits->run(); });
  std::vector<std::string> said;
  for (int i = 0; i < 10'000 && said.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    said = one.failures().empty() ? two.failures() : one.failures();
  }
  one.engine(0)->rank().abort();
  two.engine(1)->rank().abort();
  one_thread.join();
  other_thread.join();
  ASSERT_FALSE(said.empty());
  EXPECT_TRUE(contains(said[0], "in a circle over several communicators")) << said[0];
}

/// Whether the ranks, each of which makes the calls on the teams in its order, come through.
bool comes_through(std::vector<std::vector<int>> orders) {
  const auto done = [&] { return std::all_of(orders.begin(), orders.end(), [](const auto& o) { return o.empty(); }); };
  while (!done()) {
    const auto& first = orders.front();
    const bool all_alike = std::all_of(orders.begin(), orders.end(),
                                       [&](const auto& o) { return !o.empty() && o.front() == first.front(); });
    if (!all_alike) return false;
    for (auto& order : orders) order.erase(order.begin());
  }
  return true;
}

TEST(LongCircle, IsToldIfAndOnlyIfThereIsOne) {
  constexpr int kRanks = 3;
  constexpr int kTeams = 3;
  std::mt19937 random(3);
  int through = 0;
  for (int round = 0; round < 6; ++round) {
    std::vector<int> order{0, 1, 2, 0, 1};
    std::shuffle(order.begin(), order.end(), random);
    std::vector<std::vector<int>> orders(kRanks, order);
    std::vector<int>& other = orders[random() % kRanks];
    if (round % 2 == 0) std::shuffle(other.begin(), other.end(), random);
    std::vector<Program> programs(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const int team : orders[static_cast<size_t>(rank)]) {
        const bool slow = random() % 5 == 0;
        programs[static_cast<size_t>(rank)].push_back(all_reduce(team, std::chrono::milliseconds(slow ? 400 : 0)));
      }
    }
    const std::string said = run(std::move(programs), kTeams);
    EXPECT_EQ(said.empty(), comes_through(orders)) << round << ": " << said;
    through += said.empty() ? 1 : 0;
  }
  EXPECT_GE(through, 3);
  EXPECT_LT(through, 6);
}

}  // namespace
}  // namespace nitinol::cpu
