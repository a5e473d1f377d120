#include "algorithm/replay.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace nitinol::algorithm {
namespace {

constexpr size_t kAnyPick = 0;

bool completes(const Program& program, int slots) {
  Replay replay(program, slots);
  replay.run([](const std::vector<int>&) { return kAnyPick; }, [](const Replay::Event&) {});
  for (int rank = 0; rank < program.task.ranks; ++rank) {
    if (!replay.ended(rank)) return false;
  }
  for (const Replay::Connection& queue : replay.connections()) EXPECT_EQ(queue.sent, queue.received);
  return true;
}

struct Message {
  int from = 0;
  int to = 0;
  size_t chunks = 0;
};

std::vector<Message> random_group(int ranks, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Message> group(40);
  for (Message& message : group) {
    message.from = static_cast<int>(random() % ranks);
    message.to = rank_after(message.from, 1 + static_cast<int>(random() % (ranks - 1)), ranks);
    message.chunks = random() % 4;
  }
  return group;
}

/// Every rank's messages of one peer and direction are a program of their own: the executors' way.
Program independent(const std::vector<Message>& group) {
  std::map<std::pair<int, int>, size_t> chunks;
  for (const Message& message : group) chunks[{message.from, message.to}] += message.chunks;
  Program program;
  program.task.ranks = static_cast<int>(2 * chunks.size());
  for (const auto& [pair, count] : chunks) {
    const int sender = static_cast<int>(program.traces.size());
    Recorder sends(sender, program.task);
    Recorder receives(sender + 1, program.task);
    for (size_t k = 0; k < count; ++k) {
      sends.send(sender + 1, input(k, 1));
      receives.recv(sender, output(k, 1));
    }
    program.traces.push_back(sends.take());
    program.traces.push_back(receives.take());
  }
  return program;
}

/// One program per rank, in the order of the calls.
Program sequential(const std::vector<Message>& group, int ranks) {
  Program program;
  program.task.ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    Recorder recorder(rank, program.task);
    for (const Message& message : group) {
      for (size_t k = 0; k < message.chunks; ++k) {
        if (message.from == rank) recorder.send(message.to, input(k, 1));
        if (message.to == rank) recorder.recv(message.from, output(k, 1));
      }
    }
    program.traces.push_back(recorder.take());
  }
  return program;
}

TEST(Replay, AnyGroupOfMessagesCompletesWithOneSlotIfEachPeerAndDirectionGoesItsOwnWay) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    EXPECT_TRUE(completes(independent(random_group(2 + seed % 7, seed)), 1)) << "seed " << seed;
  }
}

TEST(Replay, TwoRanksThatSendFirstNeedThat) {
  const std::vector<Message> exchange{{0, 1, 3}, {1, 0, 3}};
  EXPECT_TRUE(completes(independent(exchange), 1));
  // Rank 0 sends, then receives; rank 1 the other way round: fine in this order ...
  EXPECT_TRUE(completes(sequential(exchange, 2), 1));
  // ... but not if both send first.
  Program both = sequential(exchange, 2);
  both.traces[1] = both.traces[0];
  for (Step& step : both.traces[1]) {
    if (step.flow.to == Peers::kOne) step.to = 0;
    if (step.flow.from == Peers::kOne) step.from = 0;
  }
  EXPECT_FALSE(completes(both, 1));
  EXPECT_FALSE(completes(both, 2));
  EXPECT_TRUE(completes(both, 3));
}

TEST(Replay, ShowsSourcesByRankAndSinksFromTheSuccessorOn) {
  Task task{.ranks = 4};
  Program program{task, {}};
  for (int rank = 0; rank < 4; ++rank) {
    Recorder recorder(rank, task);
    recorder.push_to_all(input(0, 1));
    recorder.reduce_from_all(input(0, 1), output(0, 1));
    program.traces.push_back(recorder.take());
  }
  Replay replay(program, 1);
  std::vector<std::vector<int>> sources(4);
  std::vector<std::vector<int>> sinks(4);
  replay.run([](const std::vector<int>&) { return kAnyPick; },
             [&](const Replay::Event& event) {
               for (const int i : event.incoming) sources[event.rank].push_back(replay.connections()[i].from);
               for (const int i : event.outgoing) sinks[event.rank].push_back(replay.connections()[i].to);
             });
  EXPECT_EQ(sources[2], (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(sinks[2], (std::vector<int>{3, 0, 1}));
}

TEST(Replay, LeavesOutTheExcludedPeer) {
  Task task{.ranks = 4};
  Program program{task, {}};
  for (int rank = 0; rank < 4; ++rank) {
    Recorder recorder(rank, task);
    if (rank == 1) recorder.send(3, input(0, 1));
    if (rank == 3) recorder.recv_and_push_to_all_but(1, output(0, 1), 1);
    if (rank == 0 || rank == 2) recorder.recv(3, output(0, 1));
    program.traces.push_back(recorder.take());
  }
  EXPECT_TRUE(completes(program, 1));
}

TEST(Replay, SaysWhatIsAwaited) {
  Task task{.ranks = 2};
  Program program{task, {{}, {}}};
  Recorder recorder(0, task);
  recorder.recv(1, output(0, 1));
  program.traces[0] = recorder.take();
  Replay replay(program, 1);
  EXPECT_FALSE(replay.can_go_on(0));
  EXPECT_EQ(replay.connections()[replay.awaited(0)].from, 1);
  EXPECT_TRUE(replay.ended(1));
}

}  // namespace
}  // namespace nitinol::algorithm
