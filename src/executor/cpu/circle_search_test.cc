// Ranks that wait for each other in a circle are told without a deadline; ranks that only wait long are not.
#include "executor/cpu/circle_search.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "executor/cpu/team_testing.h"

namespace nitinol::cpu {
namespace {

using Direction = MessageWork::Direction;

constexpr size_t kLarge = 200'000;  // more than fits into the slots of teams here

/// What one rank calls, one launch after the other.
class Program {
 public:
  Program& receive(int from, size_t bytes = 8) { return message(Direction::kReceive, from, bytes); }
  Program& send(int to, size_t bytes = 8) { return message(Direction::kSend, to, bytes); }
  Program& exchange(int to, int from, size_t bytes) {
    Launch launch;
    launch.messages.push_back({Direction::kReceive, from, in_.data(), bytes});
    launch.messages.push_back({Direction::kSend, to, out_.data(), bytes});
    return add(launch);
  }
  Program& call(Collective what, int root = 0, size_t bytes = 16, Algorithm algorithm = Algorithm::kOneShot) {
    CollectiveWork work;
    work.what = what;
    work.input = out_.data();
    work.output = in_.data();
    work.count = reduces(what) ? bytes / 4 : bytes;
    work.root = root;
    work.stated = DataType::kFloat32;
    work.type = reduces(what) ? DataType::kFloat32 : DataType::kUint8;
    work.plan.algorithm = algorithm;
    return add(Launch{.collectives = {work}, .messages = {}});
  }
  /// Small, but in two steps: ranks beside the root combine, or pass on, what is another's.
  Program& share(Collective what, int root) { return call(what, root, 4096, Algorithm::kTwoShot); }
  /// A broadcast from one rank to the next.
  Program& go_round(int root) { return call(Collective::kBroadcast, root, 4096, Algorithm::kRing); }
  Program& pause(std::chrono::milliseconds time) {
    steps_.emplace_back([time](Engine&) { std::this_thread::sleep_for(time); });
    return *this;
  }
  void run(Engine& engine) {
    for (const auto& step : steps_) step(engine);
  }

 private:
  Program& message(Direction direction, int peer, size_t bytes) {
    void* const buffer = direction == Direction::kSend ? out_.data() : in_.data();
    return add(Launch{.collectives = {}, .messages = {{direction, peer, buffer, bytes}}});
  }
  Program& add(const Launch& launch) {
    steps_.emplace_back([launch](Engine& engine) { Team::run_launch(engine, launch); });
    return *this;
  }

  std::vector<std::byte> in_ = std::vector<std::byte>(kLarge);
  std::vector<std::byte> out_ = std::vector<std::byte>(kLarge);
  std::vector<std::function<void(Engine&)>> steps_;
};

/// What the first rank says that fails; then all are stopped. "" if all come through.
std::string run(std::vector<Program>& programs, Living living = Living::kTogether) {
  Team team(static_cast<int>(programs.size()), living, 16384);
  std::atomic<bool> over{false};
  std::thread stopper([&] {
    while (!over && team.failures().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int rank = 0; !over && rank < team.ranks(); ++rank) team.engine(rank)->rank().abort();
  });
  team.run([&](int rank, Engine& engine) { programs[static_cast<size_t>(rank)].run(engine); });
  over = true;
  stopper.join();
  const std::vector<std::string> failures = team.failures();
  return failures.empty() ? "" : failures.front();
}

::testing::AssertionResult tells(const std::string& sentence, const std::vector<const char*>& words) {
  for (const char* word : words) {
    if (sentence.find(word) == std::string::npos) {
      return ::testing::AssertionFailure() << "'" << sentence << "' lacks '" << word << "'";
    }
  }
  return ::testing::AssertionSuccess();
}

TEST(CircleSearch, TwoThatReceiveBeforeTheySend) {
  for (const Living living : {Living::kTogether, Living::kApart}) {
    std::vector<Program> programs(2);
    for (int rank = 0; rank < 2; ++rank) programs[static_cast<size_t>(rank)].receive(1 - rank).send(1 - rank);
    EXPECT_TRUE(
        tells(run(programs, living),
              {"in a circle: rank 0 (", ") waits in Recv number 1 from rank 1 (count 8, type uint8) for rank 1 (",
               "), which waits in Recv number 1 from rank 0 (count 8, type uint8) for rank 0 ("}));
  }
}

TEST(CircleSearch, ManyThatSendMoreThanFitsBeforeTheyReceive) {
  constexpr int kRanks = 6;
  for (const Living living : {Living::kTogether, Living::kApart, Living::kInPairs}) {
    std::vector<Program> programs(kRanks + 1);  // the last takes no part
    for (int rank = 0; rank < kRanks; ++rank) {
      programs[static_cast<size_t>(rank)]
          .send((rank + 1) % kRanks, kLarge)
          .receive((rank + kRanks - 1) % kRanks, kLarge);
    }
    EXPECT_TRUE(tells(run(programs, living),
                      {"in a circle: rank 0 (", "waits in Send number 1 to rank 1 (count 200000, type uint8) for",
                       "waits in Send number 1 to rank 5 (", "which waits in Send number 1 to rank 0 ("}));
  }
}

TEST(CircleSearch, OverACollectiveOfOthers) {
  std::vector<Program> programs(3);
  programs[0].receive(1).send(2).call(Collective::kBroadcast, 2);
  programs[1].call(Collective::kBroadcast, 2).send(0);  // waits for rank 2 alone
  programs[2].receive(0).call(Collective::kBroadcast, 2);
  EXPECT_TRUE(tells(run(programs), {"in a circle: rank 0 (", "waits in Recv number 1 from rank 1 (",
                                    "which waits in Broadcast number 1 (count 4, type float32, root 2) for rank 2 (",
                                    "which waits in Recv number 1 from rank 0 ("}));
}

TEST(CircleSearch, WhoHasNoRoomForWhatIsSentToItIsWaitedForToo) {
  std::vector<Program> two(2);
  two[0].call(Collective::kBroadcast, 0, kLarge).send(1);
  two[1].receive(0).call(Collective::kBroadcast, 0, kLarge);
  EXPECT_TRUE(tells(run(two), {"rank 1 waits in Recv number 1 from rank 0 (",
                               "which is in Broadcast number 1 (count "
                               "50000, type float32, root 0) and cannot "
                               "leave it before rank 1 has joined it"}));
  for (const Living living : {Living::kTogether, Living::kApart}) {
    std::vector<Program> three(3);
    three[0].receive(1).call(Collective::kReduce, 1, kLarge);
    three[1].receive(2).send(0).call(Collective::kReduce, 1, kLarge);
    three[2].call(Collective::kReduce, 1, kLarge).send(1);
    EXPECT_TRUE(tells(run(three, living), {"Reduce number 1 (count 50000, type float32, op sum, root 1)",
                                           "waits in Recv number 1 from rank 2 ("}));
    std::vector<Program> circle(3);
    circle[0].call(Collective::kBroadcast, 0, kLarge).send(2);
    circle[1].receive(2).call(Collective::kBroadcast, 0, kLarge);
    circle[2].receive(0).send(1).call(Collective::kBroadcast, 0, kLarge);
    EXPECT_TRUE(tells(run(circle, living), {"in a circle: rank 0 (", "waits in Broadcast number 1 (count 50000,",
                                            "which waits in Recv number 1 from rank 2 ("}));
  }
}

TEST(CircleSearch, WhoLacksAnothersPartOfWhatItPassesOnIsWaitedForToo) {
  for (const Living living : {Living::kTogether, Living::kApart}) {
    std::vector<Program> reduce(3);
    reduce[0].receive(2).share(Collective::kReduce, 1);
    reduce[1].share(Collective::kReduce, 1);
    reduce[2].share(Collective::kReduce, 1).send(0);
    EXPECT_TRUE(
        tells(run(reduce, living), {"rank 0 waits in Recv number 1 from rank 2 (",
                                    "which is in Reduce number 1 (count 1024, type float32, op sum, root 1) and "
                                    "cannot leave it before rank 0 has joined it"}));
    std::vector<Program> broadcast(3);
    broadcast[0].share(Collective::kBroadcast, 0);
    broadcast[1].share(Collective::kBroadcast, 0).send(2);
    broadcast[2].receive(1).share(Collective::kBroadcast, 0);
    EXPECT_TRUE(tells(run(broadcast, living), {"rank 2 waits in Recv number 1 from rank 1 (",
                                               "which is in Broadcast number 1 (count 1024, type float32, root 0) and "
                                               "cannot leave it before rank 2 has joined it"}));
    std::vector<Program> circle(3);
    circle[0].receive(1).share(Collective::kReduce, 1);
    circle[1].receive(2).send(0).share(Collective::kReduce, 1);
    circle[2].share(Collective::kReduce, 1).send(1);
    EXPECT_TRUE(tells(run(circle, living), {"in a circle: rank 0 (", "waits in Recv number 1 from rank 1 (",
                                            "which waits in Reduce number 1 (count 1024, type float32, op sum, root 1) "
                                            "for rank 0 ("}));
  }
}

TEST(CircleSearch, OverRanksThatWaitForEachOtherInACollective) {
  for (const Living living : {Living::kTogether, Living::kApart}) {
    std::vector<Program> programs(4);
    programs[0].go_round(0);
    programs[1].receive(3).go_round(0);
    programs[2].go_round(0);  // waits for rank 1
    programs[3].go_round(0).send(1);
    EXPECT_TRUE(tells(run(programs, living), {"in a circle: rank 1 (", "waits in Recv number 1 from rank 3 (",
                                              "which waits in Broadcast number 1 (count 1024, type float32, root 0) "
                                              "for rank 2 (",
                                              "which waits in Broadcast number 1 (count 1024, type float32, root 0) "
                                              "for rank 1 ("}));
  }
}

TEST(CircleSearch, WhoeverWaitsForThoseInACircleTellsOfItToo) {
  std::vector<Program> programs(4);
  programs[0].call(Collective::kAllReduce);  // in this nobody can tell of circles
  programs[1].receive(2);
  programs[2].receive(3);
  programs[3].receive(2);
  EXPECT_TRUE(tells(run(programs), {"in a circle: rank 2 (", "waits in Recv number 1 from rank 3 ("}));
}

TEST(CircleSearch, LongWaitsAreNoCircle) {
  constexpr std::chrono::milliseconds kLong{900};
  for (const Living living : {Living::kTogether, Living::kApart}) {
    std::vector<Program> programs(4);
    programs[0].pause(kLong).send(1).receive(3).call(Collective::kAllReduce);
    programs[1].receive(0).send(2, kLarge).call(Collective::kAllReduce);
    programs[2].receive(1, kLarge).send(3).call(Collective::kAllReduce);
    programs[3].receive(2).send(0).call(Collective::kAllReduce);
    EXPECT_EQ(run(programs, living), "");
  }
}

TEST(CircleSearch, RootsThatWaitLongForRoomAreInNoCircle) {
  constexpr std::chrono::milliseconds kLong{900};
  for (const Living living : {Living::kTogether, Living::kApart}) {
    std::vector<Program> programs(3);
    programs[0].call(Collective::kBroadcast, 0, kLarge).send(1).send(2);
    programs[1].pause(kLong).call(Collective::kBroadcast, 0, kLarge).receive(0).receive(2);
    programs[2].call(Collective::kBroadcast, 0, kLarge).receive(0).send(1);
    EXPECT_EQ(run(programs, living), "");
  }
}

TEST(CircleSearch, WhoWaitsLongForAnothersPartIsInNoCircle) {
  constexpr std::chrono::milliseconds kLong{900};
  for (const Living living : {Living::kTogether, Living::kApart}) {
    std::vector<Program> programs(3);
    programs[0].receive(2).share(Collective::kReduce, 1).receive(2);
    programs[1].share(Collective::kReduce, 1).send(2);
    programs[2].pause(kLong).send(0).share(Collective::kReduce, 1).receive(1).send(0);
    EXPECT_EQ(run(programs, living), "");
  }
}

TEST(CircleSearch, RanksThatWaitLongForEachOtherInACollectiveAreInNoCircle) {
  constexpr std::chrono::milliseconds kLong{900};
  for (const Living living : {Living::kTogether, Living::kApart}) {
    std::vector<Program> programs(4);
    programs[0].pause(kLong).go_round(0);
    programs[1].go_round(0).receive(3);
    programs[2].go_round(0).receive(3);
    programs[3].go_round(0).pause(kLong).send(1).send(2);
    EXPECT_EQ(run(programs, living), "");
  }
}

TEST(CircleSearch, GroupsThatMeetAreNoCircleHoweverLongAThirdTakes) {
  constexpr std::chrono::milliseconds kLong{900};
  std::vector<Program> programs(3);
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == 2) programs[2].pause(kLong);
    programs[static_cast<size_t>(rank)].exchange((rank + 1) % 3, (rank + 2) % 3, kLarge);
  }
  EXPECT_EQ(run(programs), "");
}

TEST(Deadline, CountsFromTheLastProgress) {
  constexpr int kSenders = 7;
  Team team(1 + kSenders);
  team.engine(0)->rank().set_timeout(std::chrono::seconds(4));
  team.run([&](int rank, Engine& engine) {
    int value = rank;
    Launch launch;
    if (rank == 0) {
      std::vector<int> values(1 + kSenders);
      for (int from = 1; from <= kSenders; ++from) {
        launch.messages.push_back({Direction::kReceive, from, &values[static_cast<size_t>(from)], sizeof(int)});
      }
      Team::run_launch(engine, launch);
      for (int from = 1; from <= kSenders; ++from) EXPECT_EQ(values[static_cast<size_t>(from)], from);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(700 * rank));  // all together later than the deadline
      launch.messages.push_back({Direction::kSend, 0, &value, sizeof value});
      Team::run_launch(engine, launch);
    }
  });
  EXPECT_EQ(team.failures(), std::vector<std::string>{});
}

}  // namespace
}  // namespace nitinol::cpu
