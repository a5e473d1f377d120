#include "executor/call_circles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <utility>

#include "executor/collective_waits.h"

namespace nitinol {
namespace {

constexpr size_t kUnreceived = 1000;

/// Launches on a board, written by hand.
class Programs {
 public:
  explicit Programs(int ranks) : board_(SharedMemory::create(CallBoard::bytes_for(ranks), false), ranks) {}

  static MessageWork send(int to, size_t bytes = 10) {
    return {.direction = MessageWork::Direction::kSend, .peer = to, .buffer = nullptr, .bytes = bytes};
  }
  static MessageWork receive(int from, size_t bytes = 10) {
    return {.direction = MessageWork::Direction::kReceive, .peer = from, .buffer = nullptr, .bytes = bytes};
  }
  void launch(int rank, std::vector<MessageWork> messages) {
    note_calls(board_, rank, Launch{.collectives = {}, .messages = std::move(messages)}, false);
  }
  void capture(int rank, std::vector<MessageWork> messages) {
    note_calls(board_, rank, Launch{.collectives = {}, .messages = std::move(messages)}, true);
  }
  void call(int rank, Collective what, int root = 0) {
    CollectiveWork work;
    work.what = what;
    work.count = 5;
    work.root = root;
    note_calls(board_, rank, Launch{.collectives = {work}, .messages = {}}, false);
  }
  void wait_in_collective(int rank, uint64_t launch, int of_rank) {
    RankSet ranks;
    ranks.add(of_rank);
    note_collective_waits(board_.page(rank), {launch, ranks});
  }
  const CallBoard& board() const { return board_; }
  std::vector<int> circle() const {
    std::vector<int> ranks;
    for (const HeldUp& each : find_circle(board_, kUnreceived).value_or(std::vector<HeldUp>())) {
      ranks.push_back(each.rank);
    }
    return ranks;
  }

 private:
  CallBoard board_;
};

using Circle = std::vector<int>;

TEST(CallCircles, TwoThatReceiveBeforeTheySend) {
  Programs p(3);
  for (int rank = 0; rank < 2; ++rank) {
    p.launch(rank, {Programs::receive(1 - rank)});
    p.launch(rank, {Programs::send(1 - rank)});
  }
  EXPECT_EQ(p.circle(), (Circle{0, 1}));
}

TEST(CallCircles, TheSameWithoutTheSendsBeingIssued) {
  Programs p(2);
  p.launch(0, {Programs::receive(1)});
  EXPECT_EQ(p.circle(), Circle());  // rank 1 may still send
  p.launch(1, {Programs::receive(0)});
  EXPECT_EQ(p.circle(), (Circle{0, 1}));
}

TEST(CallCircles, InOneGroupTheyMove) {
  Programs p(2);
  for (int rank = 0; rank < 2; ++rank) p.launch(rank, {Programs::receive(1 - rank), Programs::send(1 - rank, 9999)});
  EXPECT_EQ(p.circle(), Circle());
}

TEST(CallCircles, SendsFirstOnlyIfTheyAreLarge) {
  for (const size_t bytes : {kUnreceived, kUnreceived + 1}) {
    Programs p(2);
    for (int rank = 0; rank < 2; ++rank) {
      p.launch(rank, {Programs::send(1 - rank, bytes)});
      p.launch(rank, {Programs::receive(1 - rank, bytes)});
    }
    EXPECT_EQ(p.circle(), bytes > kUnreceived ? (Circle{0, 1}) : Circle());
  }
}

TEST(CallCircles, OfManyRanksBehindCallsThatAreThrough) {
  Programs p(5);
  for (int rank = 0; rank < 5; ++rank) {
    for (int i = 0; i < 2000; ++i) p.call(rank, i % 2 == 0 ? Collective::kAllReduce : Collective::kBroadcast, i % 5);
  }
  EXPECT_EQ(p.circle(), Circle());
  for (int rank = 0; rank < 5; ++rank) {
    if (rank == 3) continue;  // not part of it: 0 receives of 1, 1 of 2, 2 of 4, 4 of 0
    const int from = rank == 2 ? 4 : rank == 4 ? 0 : rank + 1;
    const int to = rank == 4 ? 2 : rank == 0 ? 4 : rank - 1;
    p.launch(rank, {Programs::receive(from)});
    p.launch(rank, {Programs::send(to)});
  }
  EXPECT_EQ(p.circle(), (Circle{0, 1, 2, 4}));
}

TEST(CallCircles, OfAMessageAndACollective) {
  Programs p(2);
  p.launch(0, {Programs::receive(1)});
  p.call(0, Collective::kAllReduce);
  p.call(1, Collective::kAllReduce);
  p.launch(1, {Programs::send(0)});
  EXPECT_EQ(p.circle(), (Circle{0, 1}));
}

TEST(CallCircles, ARootThatWaitsForNobodyMoves) {
  Programs p(2);
  p.launch(0, {Programs::receive(1)});
  p.call(0, Collective::kBroadcast, 1);
  p.call(1, Collective::kBroadcast, 1);
  p.launch(1, {Programs::send(0)});
  EXPECT_EQ(p.circle(), Circle());
}

TEST(CallCircles, ARootThatWaitsForRoomDoesNot) {
  Programs p(3);
  for (int rank = 0; rank < 2; ++rank) p.call(rank, Collective::kAllReduce);
  p.call(2, Collective::kAllReduce);
  p.launch(0, {Programs::receive(1)});
  p.call(0, Collective::kBroadcast, 1);
  p.call(1, Collective::kBroadcast, 1);
  p.launch(1, {Programs::send(0)});
  p.wait_in_collective(1, 1, 0);
  EXPECT_EQ(p.circle(), Circle()) << "that was in the launch before";
  p.wait_in_collective(1, 2, 2);
  EXPECT_EQ(p.circle(), Circle()) << "which may still call it";
  p.wait_in_collective(1, 2, 0);
  EXPECT_EQ(p.circle(), (Circle{0, 1}));
  p.wait_in_collective(1, 2, 2);
  EXPECT_EQ(p.circle(), (Circle{0, 1})) << "both are waited for";
}

/// What was captured may run at any time, and so may what is behind it.
TEST(CallCircles, DoNotLeadOverARankThatHasCapturedMessages) {
  Programs p(4);
  for (int rank = 0; rank < 3; ++rank) p.launch(rank, {Programs::receive((rank + 1) % 3)});
  EXPECT_EQ(p.circle(), (Circle{0, 1, 2}));
  p.capture(3, {Programs::send(0)});
  EXPECT_EQ(p.circle(), (Circle{0, 1, 2})) << "it is beside them";
  p.capture(1, {Programs::send(0)});
  EXPECT_EQ(p.circle(), Circle());
}

TEST(CallCircles, AreLookedForAgainWhenSomebodyWaitsForRoom) {
  Programs p(2);
  CircleMoments moments;
  auto now = std::chrono::steady_clock::time_point{} + std::chrono::hours(1);
  const auto may_be_found_in_a_second = [&] {
    bool may = false;
    for (int i = 0; i < 25; ++i) may = moments.may_be_found(p.board(), now += std::chrono::milliseconds(40)) || may;
    return may;
  };
  p.call(0, Collective::kBroadcast, 0);
  EXPECT_TRUE(may_be_found_in_a_second());
  EXPECT_FALSE(may_be_found_in_a_second()) << "nothing is new";
  p.wait_in_collective(0, 1, 1);
  EXPECT_TRUE(may_be_found_in_a_second());
  p.wait_in_collective(0, 1, 1);
  EXPECT_FALSE(may_be_found_in_a_second()) << "that was known";
}

TEST(CallCircles, AreLookedForBesideCapturedCallsByThoseAloneWhoLeaveThemOut) {
  Programs p(2);
  CircleMoments moments;
  CircleMoments others;
  auto now = std::chrono::steady_clock::time_point{} + std::chrono::hours(1);
  p.capture(1, {Programs::send(0)});
  bool may = false;
  bool is_quiet = false;
  for (int i = 0; i < 25; ++i) {
    now += std::chrono::milliseconds(40);
    may = moments.may_be_found(p.board(), now) || may;
    is_quiet = others.is_quiet(p.board(), now) || is_quiet;
  }
  EXPECT_FALSE(may);
  EXPECT_TRUE(is_quiet);
}

/// Programs that can run, as they are parts of one order of things: whatever of them is issued, nobody is in a circle.
TEST(CallCircles, AreNeverSeenInProgramsThatCanRun) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int ranks = 2 + static_cast<int>(random() % 5);
    Programs p(ranks);
    std::vector<std::vector<std::function<void()>>> left(static_cast<size_t>(ranks));
    for (int step = 0; step < 60; ++step) {
      const int a = static_cast<int>(random() % static_cast<unsigned>(ranks));
      const int b = (a + 1 + static_cast<int>(random() % static_cast<unsigned>(ranks - 1))) % ranks;
      const size_t bytes = random() % 2 == 0 ? 10 : 10 * kUnreceived;
      if (random() % 4 == 0) {
        const auto what = static_cast<Collective>(random() % kCollectives);
        for (int rank = 0; rank < ranks; ++rank) {
          left[static_cast<size_t>(rank)].push_back([&p, rank, what, a] { p.call(rank, what, a); });
        }
      } else if (random() % 2 == 0) {
        left[static_cast<size_t>(a)].push_back([&p, a, b, bytes] { p.launch(a, {Programs::send(b, bytes)}); });
        left[static_cast<size_t>(b)].push_back([&p, a, b, bytes] { p.launch(b, {Programs::receive(a, bytes)}); });
      } else {
        for (const auto& [me, you] : {std::pair(a, b), std::pair(b, a)}) {
          left[static_cast<size_t>(me)].push_back([&p, me = me, you = you, bytes] {
            p.launch(me, {Programs::receive(you, bytes), Programs::send(you, bytes)});
          });
        }
      }
    }
    std::vector<size_t> at(static_cast<size_t>(ranks), 0);
    for (int i = 0; i < 120; ++i) {
      const size_t rank = random() % static_cast<unsigned>(ranks);
      for (size_t burst = random() % 8; burst > 0 && at[rank] < left[rank].size(); --burst) left[rank][at[rank]++]();
      ASSERT_EQ(p.circle(), Circle()) << "round " << round;
    }
  }
}

/// The same with two launches of one rank exchanged: if nobody is found in a circle, everybody comes through.
TEST(CallCircles, AreFoundWheneverNobodyGetsThrough) {
  std::mt19937 random(8);
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    constexpr int kRanks = 3;
    Programs p(kRanks);
    std::vector<std::vector<MessageWork>> order(kRanks);
    for (int step = 0; step < 4; ++step) {
      const int a = static_cast<int>(random() % kRanks);
      const int b = (a + 1 + static_cast<int>(random() % (kRanks - 1))) % kRanks;
      order[static_cast<size_t>(a)].push_back(Programs::send(b, 10 * kUnreceived));
      order[static_cast<size_t>(b)].push_back(Programs::receive(a, 10 * kUnreceived));
    }
    for (auto& messages : order) std::shuffle(messages.begin(), messages.end(), random);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const MessageWork& message : order[static_cast<size_t>(rank)]) p.launch(rank, {message});
    }
    // Played through: a message moves when it is the next of both.
    std::vector<size_t> at(kRanks, 0);
    const auto next = [&](int rank) -> const MessageWork* {
      const auto r = static_cast<size_t>(rank);
      return at[r] < order[r].size() ? &order[r][at[r]] : nullptr;
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < kRanks; ++rank) {
        const MessageWork* const mine = next(rank);
        const MessageWork* const theirs = mine != nullptr ? next(mine->peer) : nullptr;
        if (theirs == nullptr || theirs->peer != rank || theirs->direction == mine->direction) continue;
        ++at[static_cast<size_t>(mine->peer)];
        ++at[static_cast<size_t>(rank)];
        moved = true;
      }
    }
    bool through = true;
    for (int rank = 0; rank < kRanks; ++rank) through = through && next(rank) == nullptr;
    ASSERT_EQ(p.circle().empty(), through) << "round " << round;
    if (!through) ++found;
  }
  EXPECT_GT(found, 20);
}

}  // namespace
}  // namespace nitinol
