// Ranks of several communicators that use them in different orders in their streams are told; others are not. Streams
// are played by hand.
#include "executor/long_circle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <thread>

namespace nitinol {
namespace {

constexpr size_t kUnreceived = 1 << 16;

Launch all_reduce(size_t count = 4) {
  CollectiveWork work;
  work.count = count;
  work.type = work.stated = DataType::kInt32;
  return Launch{.collectives = {work}, .messages = {}};
}

Launch message(MessageWork::Direction direction, int peer) {
  MessageWork work;
  work.direction = direction;
  work.peer = peer;
  work.bytes = 8;
  return Launch{.collectives = {}, .messages = {work}};
}

/// One rank of a communicator, with the thread that looks.
struct Member {
  Member(const CallBoard& board, const std::vector<Peer>& peers, int rank, std::array<uint64_t, 2> identity)
      : present(board, rank, kUnreceived), circle(present, LongCircle::Self{identity, peers, places}) {}
  StreamPlaces places;
  PresentLaunch present;
  LongCircle circle;
  uint64_t begun = 0;
  uint64_t through = 0;
};

/// Some processes' ranks in one communicator.
struct Team {
  Team(const std::vector<int>& from, uint64_t name)
      : processes(from),
        board(SharedMemory::create(CallBoard::bytes_for(ranks()), false), ranks()),
        peers(from.size()) {
    for (int rank = 0; rank < ranks(); ++rank) {
      members.push_back(std::make_unique<Member>(board, peers, rank, std::array<uint64_t, 2>{name, 0}));
    }
  }
  int ranks() const { return static_cast<int>(processes.size()); }
  int rank_of(int process) const {
    return static_cast<int>(std::find(processes.begin(), processes.end(), process) - processes.begin());
  }
  std::vector<int> processes;
  CallBoard board;
  std::vector<Peer> peers;
  std::vector<std::unique_ptr<Member>> members;
};

/// Processes with a stream each.
class Play {
 public:
  explicit Play(const std::vector<std::vector<int>>& teams) {
    for (const auto& each : teams) teams_.push_back(std::make_unique<Team>(each, teams_.size() + 1));
  }

  void issue(int process, int team, const Launch& launch, bool captured = false) {
    Team& in = *teams_[static_cast<size_t>(team)];
    const int rank = in.rank_of(process);
    note_calls(in.board, rank, launch, captured);
    if (captured) return;
    const uint64_t number = in.board.page(rank).launches.load();
    in.members[static_cast<size_t>(rank)]->places.add(number, stream_of(process, handles_[process]));
    streams_[{process, handles_[process]}].push_back({team, rank, number});
  }
  /// What the process has issued last on the team's communicator uses another of its streams, too.
  void join_stream(int process, int team, int handle) {
    const Team& in = *teams_[static_cast<size_t>(team)];
    const int rank = in.rank_of(process);
    const uint64_t number = in.board.page(rank).launches.load();
    in.members[static_cast<size_t>(rank)]->places.join(number, stream_of(process, handle));
    streams_[{process, handle}].push_back({team, rank, number});
  }
  /// The process goes on in another of its streams.
  void change_stream(int process, int to = 1) { handles_[process] = 100 * to; }

  /// Runs what can run, then looks for two seconds. What was said first; "" if nothing.
  std::string look() {
    while (advance()) {
    }
    for (int i = 0; i < 40; ++i) {
      now_ += std::chrono::milliseconds(50);
      for (int team = 0; team < static_cast<int>(teams_.size()); ++team) {
        for (int rank = 0; rank < teams_[static_cast<size_t>(team)]->ranks(); ++rank) {
          if (const std::string said = look(team, rank); !said.empty()) return said;
        }
      }
    }
    return "";
  }
  /// One looks once.
  std::string look(int team, int rank) {
    Member& member = *teams_[static_cast<size_t>(team)]->members[static_cast<size_t>(rank)];
    member.present.look([&] { return std::optional(member.through); }, now_);
    return member.circle.look().value_or("");
  }
  void pass(std::chrono::milliseconds time) { now_ += time; }
  /// Each stream goes one step further if it can.
  bool advance() {
    bool moved = false;
    for (auto& [name, stream] : streams_) {
      if (stream.empty()) continue;
      const Entry first = stream.front();
      const auto is_first_if_there = [&](const auto& each) {
        const auto& entries = each.second;
        return std::find(entries.begin(), entries.end(), first) == entries.end() || entries.front() == first;
      };
      if (!std::all_of(streams_.begin(), streams_.end(), is_first_if_there)) continue;
      const Team& team = *teams_[static_cast<size_t>(first.team)];
      Member& member = *team.members[static_cast<size_t>(first.rank)];
      if (member.through + 1 != first.launch) continue;
      moved = moved || member.begun != first.launch;
      member.begun = first.launch;
      if (!can_end(team, first)) continue;
      member.through = first.launch;
      for (auto& each : streams_) std::erase(each.second, first);
      moved = true;
    }
    return moved;
  }
  bool through() const {
    return std::all_of(streams_.begin(), streams_.end(), [](const auto& each) { return each.second.empty(); });
  }

 private:
  struct Entry {
    int team;
    int rank;
    uint64_t launch;
    friend bool operator==(const Entry&, const Entry&) = default;
  };

  static StreamName stream_of(int process, int handle) {
    return {static_cast<unsigned long long>(0x1000 + process + handle), 0};
  }

  static bool can_end(const Team& team, const Entry& entry) {
    const auto needs = needs_of(team.board, entry.rank, kUnreceived);
    return std::all_of(needs.begin(), needs.end(), [&](const Need& need) {
      const auto launch = launch_for(team.board, entry.rank, need);
      return need.launch != entry.launch || *launch <= team.members[static_cast<size_t>(need.peer)]->begun;
    });
  }

  std::vector<std::unique_ptr<Team>> teams_;
  std::map<std::pair<int, int>, std::deque<Entry>> streams_;  ///< by process and handle
  std::map<int, int> handles_;
  PresentLaunch::Clock::time_point now_{};
};

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST(LongCircle, OfTwoCommunicatorsIsTold) {
  Play play({{0, 1}, {0, 1}});
  for (const int team : {0, 1}) play.issue(0, team, all_reduce());
  EXPECT_EQ(play.look(), "");
  for (const int team : {1, 0}) play.issue(1, team, all_reduce());
  const std::string said = play.look();
  EXPECT_TRUE(contains(said, "in a circle over several communicators: rank ")) << said;
  EXPECT_TRUE(contains(said, "waits in AllReduce number 1 (count 4, type int32, op sum) for rank ")) << said;
  EXPECT_TRUE(contains(said, "which has it behind AllReduce number 1 (count 4, type int32, op sum) on communicator "))
      << said;
}

TEST(LongCircle, OfAGroupInSeveralStreamsIsTold) {
  for (const bool joins : {false, true}) {
    Play play({{0, 1}, {0, 1}});
    for (const int process : {0, 1}) {
      play.issue(process, process, all_reduce());  // each on another communicator first
      play.change_stream(process);
      play.issue(process, 1 - process, all_reduce());
      if (joins) play.join_stream(process, 1 - process, 0);
    }
    EXPECT_EQ(!play.look().empty(), joins);
    EXPECT_EQ(play.through(), !joins);
  }
}

TEST(LongCircle, OfMessagesIsTold) {
  using Direction = MessageWork::Direction;
  Play play({{0, 1}, {0, 1}});
  play.issue(0, 0, message(Direction::kReceive, 1));
  play.issue(0, 1, message(Direction::kSend, 1));
  play.issue(1, 1, message(Direction::kReceive, 0));
  EXPECT_EQ(play.look(), "");
  play.issue(1, 0, message(Direction::kSend, 0));
  const std::string said = play.look();
  EXPECT_TRUE(contains(said, "waits in a group of sends and receives for rank ")) << said;
  EXPECT_TRUE(contains(said, "which has it behind a group of sends and receives on communicator ")) << said;
}

TEST(LongCircle, OverCommunicatorsOfWhichNobodySeesAllIsTold) {
  Play play({{0, 1}, {1, 2}, {2, 3}, {3, 0}});
  for (int process = 0; process < 4; ++process) {
    const int before = (process + 3) % 4;
    for (const int team : {process, before}) play.issue(process, team, all_reduce());
  }
  EXPECT_NE(play.look(), "");
}

TEST(LongCircle, AmongManyLaunchesIsTold) {
  Play play({{0, 1}, {0, 1}});
  for (int i = 0; i < 200; ++i) {
    for (const int team : {0, 1}) {
      play.issue(0, team, all_reduce());
      play.issue(1, i == 120 ? 1 - team : team, all_reduce());
    }
  }
  const std::string said = play.look();
  EXPECT_TRUE(contains(said, "AllReduce number 121 ")) << said;
}

TEST(LongCircle, DoesNotCountWhatRunsInOtherStreams) {
  Play play({{0, 1}, {0, 1}});
  play.issue(0, 0, all_reduce());
  play.issue(0, 1, all_reduce());
  play.issue(1, 1, all_reduce());
  play.change_stream(1);
  play.issue(1, 0, all_reduce());
  EXPECT_EQ(play.look(), "");
}

TEST(LongCircle, IsNotLookedForWhereThereAreGraphs) {
  Play play({{0, 1}, {0, 1}});
  play.issue(0, 0, all_reduce(), true);
  for (const int team : {0, 1}) play.issue(0, team, all_reduce());
  for (const int team : {1, 0}) play.issue(1, team, all_reduce());
  EXPECT_EQ(play.look(), "");
}

TEST(LongCircle, IsFoundWhileCommunicatorsComeAndGo) {
  std::atomic<bool> found{false};
  std::thread others([&] {
    while (!found) Team team({0, 1}, 3);
  });
  for (int round = 0; round < 5; ++round) {
    Play play({{0, 1}, {0, 1}});
    for (const int team : {0, 1}) play.issue(0, team, all_reduce());
    EXPECT_EQ(play.look(), "");
    for (const int team : {1, 0}) play.issue(1, team, all_reduce());
    EXPECT_NE(play.look(), "");
  }
  found = true;
  others.join();
}

TEST(LongCircle, IsToldIfAndOnlyIfThereIsOne) {
  std::mt19937 random(5);
  int through = 0;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    // Each two of three processes have a communicator, and all have one.
    const std::vector<std::vector<int>> teams{{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}};
    Play play(teams);
    std::vector<std::pair<size_t, int>> order;  // of calls that all make alike, but for a few that change places
    for (int i = 0; i < 12; ++i) order.emplace_back(random() % teams.size(), i);
    for (int process = 0; process < 3; ++process) {
      auto mine = order;
      for (size_t i = 0; i + 1 < mine.size() && process == 0; ++i) {
        if (random() % 8 == 0 && mine[i].first != mine[i + 1].first) std::swap(mine[i], mine[i + 1]);
      }
      for (const auto& [team, call] : mine) {
        const auto& members = teams[team];
        if (std::find(members.begin(), members.end(), process) == members.end()) continue;
        play.issue(process, static_cast<int>(team), all_reduce());
      }
    }
    const std::string said = play.look();
    ASSERT_EQ(said.empty(), play.through()) << round << ": " << said;
    through += said.empty() ? 1 : 0;
  }
  EXPECT_GT(through, kRounds / 10);
  EXPECT_LT(through, kRounds * 9 / 10);
}

/// All processes make their calls in the same order, in any of their streams, at any time; and look at any time.
TEST(LongCircle, IsNeverToldOfAProgramThatIsRight) {
  using Direction = MessageWork::Direction;
  std::mt19937 random(6);
  const std::vector<std::vector<int>> teams{{0, 1}, {1, 2}, {0, 2}, {0, 1, 2}, {2, 0, 1}};
  const auto rank_in = [&](size_t team, size_t process) {
    const auto found = std::find(teams[team].begin(), teams[team].end(), static_cast<int>(process));
    const auto rank = static_cast<int>(found - teams[team].begin());
    return found == teams[team].end() ? std::nullopt : std::optional(rank);
  };
  for (int round = 0; round < 100; ++round) {
    Play play(teams);
    struct Call {
      size_t team;
      bool message;
    };
    std::vector<Call> order;
    for (int i = 0; i < 40; ++i) order.push_back({random() % teams.size(), random() % 3 == 0});
    std::array<size_t, 3> next{};
    const auto issue = [&](size_t process) {
      if (next[process] == order.size()) return;
      const Call call = order[next[process]++];
      const auto rank = rank_in(call.team, process);
      if (random() % 4 == 0) play.change_stream(static_cast<int>(process), static_cast<int>(random() % 2));
      if (!rank || (call.message && *rank > 1)) return;
      const Launch with_other = message(*rank == 0 ? Direction::kSend : Direction::kReceive, 1 - *rank);
      play.issue(static_cast<int>(process), static_cast<int>(call.team), call.message ? with_other : all_reduce());
    };
    while (next != std::array{order.size(), order.size(), order.size()} || !play.through()) {
      const size_t slow = random() % 3;  // for a while it neither calls nor looks
      for (int i = 0; i < 60; ++i) {
        const size_t process = random() % 3;
        if (random() % 4 == 0) play.advance();
        if (process == slow) continue;
        if (random() % 16 == 0) issue(process);
        play.pass(std::chrono::milliseconds(random() % 100));
        for (size_t team = 0; team < teams.size(); ++team) {
          const auto rank = rank_in(team, process);
          ASSERT_EQ(rank ? play.look(static_cast<int>(team), *rank) : "", "") << round;
        }
      }
    }
  }
}

}  // namespace
}  // namespace nitinol
