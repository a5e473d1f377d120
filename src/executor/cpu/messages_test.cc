// Sends and receives: any pattern, any size, all at the same time.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "executor/cpu/team_testing.h"

namespace nitinol::cpu {
namespace {

using Direction = MessageWork::Direction;

std::vector<std::byte> pattern(int from, int to, size_t number, size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<std::byte>(static_cast<size_t>(from) * 31 + static_cast<size_t>(to) * 7 + number * 3 + i);
  }
  return data;
}

/// Every rank sends to every rank, itself too, `sizes.size()` messages; run as one launch.
void exchange_everything(Team& team, const std::vector<size_t>& sizes, int times) {
  team.run([&](int rank, Engine& engine) {
    const auto ranks = static_cast<size_t>(team.ranks());
    std::vector<std::vector<std::byte>> out;
    std::vector<std::vector<std::byte>> in;
    out.reserve(ranks * sizes.size());
    in.reserve(ranks * sizes.size());
    Launch launch;
    for (size_t number = 0; number < sizes.size(); ++number) {
      for (int peer = 0; peer < team.ranks(); ++peer) {
        out.push_back(pattern(rank, peer, number, sizes[number]));
        in.emplace_back(sizes[number], std::byte{0xa5});
        launch.messages.push_back({Direction::kReceive, peer, in.back().data(), sizes[number]});
        launch.messages.push_back({Direction::kSend, peer, out.back().data(), sizes[number]});
      }
    }
    engine.rank().prepare(launch);
    const std::unique_ptr<Kernel> kernel = engine.make_kernel(launch);
    for (int i = 0; i < times; ++i) {
      for (std::vector<std::byte>& each : in) std::fill(each.begin(), each.end(), std::byte{0xa5});
      kernel->run();
      for (size_t number = 0; number < sizes.size(); ++number) {
        for (int peer = 0; peer < team.ranks(); ++peer) {
          ASSERT_EQ(in[number * ranks + static_cast<size_t>(peer)], pattern(peer, rank, number, sizes[number]))
              << "from " << peer << " to " << rank;
        }
      }
    }
  });
  EXPECT_EQ(team.failures(), std::vector<std::string>{});
}

TEST(Messages, OfEverySizeBetweenAllRanksAtOnce) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const Living living : {Living::kTogether, Living::kApart}) {
      Team team(ranks, living, 16384);
      exchange_everything(team, {0, 1, 48, 49, 5000, 0, 30'001, 17}, 2);
    }
  }
}

TEST(Messages, LargerThanAllSlotsDoNotDeadlock) {
  Team team(2, Living::kApart);
  exchange_everything(team, {1'000'000, 600'000}, 1);
}

TEST(Messages, OfZeroBytesKeepTheirPlace) {
  Team team(2);
  team.run([&](int rank, Engine& engine) {
    int value = rank == 0 ? 42 : 0;
    Launch launch;
    const Direction direction = rank == 0 ? Direction::kSend : Direction::kReceive;
    for (int i = 0; i < 10; ++i) launch.messages.push_back({direction, 1 - rank, nullptr, 0});
    launch.messages.push_back({direction, 1 - rank, &value, sizeof value});
    Team::run_launch(engine, launch);
    EXPECT_EQ(value, 42);
  });
}

TEST(Messages, DoNotMindCollectivesInBetweenOnOneSide) {
  // Rank 0 sends before the collective, rank 1 receives after it: the message waits in its slot.
  Team team(2);
  team.run([&](int rank, Engine& engine) {
    int value = rank == 0 ? 42 : 0;
    int sum = 1;
    const MessageWork message{rank == 0 ? Direction::kSend : Direction::kReceive, 1 - rank, &value, sizeof value};
    CollectiveWork collective;
    collective.input = collective.output = &sum;
    collective.count = 1;
    collective.type = DataType::kInt32;
    if (rank == 0) Team::run_launch(engine, Launch{.collectives = {}, .messages = {message}});
    Team::run_launch(engine, Launch{.collectives = {collective}, .messages = {}});
    if (rank == 1) Team::run_launch(engine, Launch{.collectives = {}, .messages = {message}});
    EXPECT_EQ(value, 42);
    EXPECT_EQ(sum, 2);
  });
  EXPECT_EQ(team.failures(), std::vector<std::string>{});
}

TEST(Messages, ToSelfMustPair) {
  Team team(1);
  int a = 1;
  int b = 0;
  Team::run_launch(*team.engine(0), Launch{.collectives = {}, .messages = {{Direction::kSend, 0, &a, 4}}});
  ASSERT_EQ(team.failures().size(), 1U);
  EXPECT_NE(team.failures()[0].find("must pair"), std::string::npos);
  Team other(1);
  Team::run_launch(
      *other.engine(0),
      Launch{.collectives = {}, .messages = {{Direction::kSend, 0, &a, 4}, {Direction::kReceive, 0, &b, 2}}});
  EXPECT_EQ(other.failures().size(), 1U);
  EXPECT_EQ(b, 0);
}

TEST(Messages, OfDifferentSizesOnTheTwoSidesAreReported) {
  Team team(2);
  team.run([&](int rank, Engine& engine) {
    std::vector<std::byte> data(1000);
    Launch launch;
    if (rank == 0) {
      launch.messages.push_back({Direction::kSend, 1, data.data(), 1000});
    } else {
      launch.messages.push_back({Direction::kReceive, 0, data.data(), 100});
    }
    Team::run_launch(engine, launch);
  });
  ASSERT_EQ(team.failures().size(), 1U);
  EXPECT_NE(team.failures()[0].find("rank 1 calls Recv number 1 from rank 0 (count 100, type uint8), rank 0 (host "),
            std::string::npos);
}

}  // namespace
}  // namespace nitinol::cpu
