#include "algorithm/parts.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "algorithm/replay.h"

namespace nitinol::algorithm {
namespace {

constexpr size_t kChunk = 32;

Program recorded(Collective what, Algorithm algorithm, int ranks) {
  return record(algorithm, Task{what, ranks, 0, share_of(kChunk * ranks * 2 + 7, kChunk, 0, 1, 16)});
}

bool same(const Step& one, const Step& other) {
  return one.from == other.from && one.to == other.to && one.own == other.own && one.into == other.into &&
         one.count == other.count && one.flow.from == other.flow.from && one.flow.to == other.flow.to;
}

TEST(Parts, GetEachTransferOnceAndInOrder) {
  Table::for_each([](auto entry) {
    const Program whole = recorded(entry.row.what, entry.row.algorithm, 5);
    const Program divided = divide(whole);
    ASSERT_EQ(divided.processes(), 5 * divided.parts);
    for (int rank = 0; rank < 5; ++rank) {
      std::vector<size_t> done(divided.parts);
      for (const Step& step : whole.traces[rank]) {
        int takers = 0;
        for (int part = 0; part < divided.parts; ++part) {
          const Trace& mine = divided.traces[divided.process_of(rank, part)];
          if (done[part] == mine.size() || !same(mine[done[part]], step)) continue;
          ++done[part];
          ++takers;
        }
        EXPECT_EQ(takers, 1) << name_of(entry.row.what) << " " << name_of(entry.row.algorithm);
      }
      for (int part = 0; part < divided.parts; ++part) {
        EXPECT_EQ(done[part], divided.traces[divided.process_of(rank, part)].size());
      }
    }
  });
}

TEST(Parts, OfAReductionCombineSendAndReceive) {
  const Program divided = divide(recorded(Collective::kAllReduce, Algorithm::kTwoShot, 3));
  EXPECT_EQ(divided.parts, 3);
  EXPECT_EQ(divided.streams, 2);
  for (int process = 0; process < divided.processes(); ++process) {
    EXPECT_FALSE(divided.traces[process].empty());
    for (const Step& step : divided.traces[process]) {
      const int part = divided.part_of(process);
      EXPECT_EQ(step.flow.finish, part == 0);
      EXPECT_EQ(step.flow.to, part == 0 ? Peers::kAll : part == 1 ? Peers::kOne : Peers::kNone);
      EXPECT_EQ(step.stream_in, part == 0 ? 0 : 1);
      EXPECT_EQ(step.stream_out, part == 0 ? 1 : 0);
    }
  }
}

TEST(Parts, OfAReductionByPeerMoveFromOrToOneEachAndCombineInThePartBesides) {
  const Program divided = divide(recorded(Collective::kAllReduce, Algorithm::kTwoShot, 3), Division::kByPeer);
  EXPECT_EQ(divided.parts, 5);
  EXPECT_EQ(divided.streams, 2);
  for (int process = 0; process < divided.processes(); ++process) {
    const int rank = divided.rank_of(process);
    const int part = divided.part_of(process);
    EXPECT_FALSE(divided.traces[process].empty());
    for (const Step& step : divided.traces[process]) {
      EXPECT_EQ(step.flow.finish, part == 0);
      EXPECT_EQ(step.to, part >= 1 && part < 3 ? rank_after(rank, part, 3) : -1);
      EXPECT_EQ(step.from, part >= 3 ? rank_before(rank, part - 2, 3) : -1);
      EXPECT_EQ(step.stream_in, part == 0 ? 0 : 1);
      EXPECT_EQ(step.stream_out, part == 0 ? 1 : 0);
    }
  }
}

TEST(Parts, ThatOnlyMoveDataHaveOnePeerEach) {
  const Program divided = divide(recorded(Collective::kAllToAll, Algorithm::kOneShot, 4));
  EXPECT_EQ(divided.parts, 7);
  EXPECT_EQ(divided.streams, 1);
  for (int process = 0; process < divided.processes(); ++process) {
    const int rank = divided.rank_of(process);
    const int part = divided.part_of(process);
    EXPECT_FALSE(divided.traces[process].empty());
    for (const Step& step : divided.traces[process]) {
      EXPECT_EQ(step.to, part >= 1 && part < 4 ? rank_after(rank, part, 4) : -1);
      EXPECT_EQ(step.from, part >= 4 ? rank_before(rank, part - 3, 4) : -1);
    }
  }
}

/// The part that uses each end of each connection, in all rows that may run in parts. How many are used by several.
int shared_ends(bool reductions) {
  constexpr int kRanks = 5;
  std::map<std::tuple<int, int, int, bool>, int> user;  // by rank, peer, stream and direction
  int shared = 0;
  const auto use = [&](const Program& program, int process, int peer, int stream, bool sends) {
    const auto key = std::make_tuple(program.rank_of(process), peer, stream, sends);
    const auto [place, fresh] = user.try_emplace(key, program.part_of(process));
    if (!fresh && place->second != program.part_of(process)) ++shared;
  };
  Table::for_each([&](auto entry) {
    if (!entry.row.apart || reduces(entry.row.what) != reductions) return;
    for (int root = 0; root < kRanks; ++root) {
      const Program whole =
          record(entry.row.algorithm, Task{entry.row.what, kRanks, root, share_of(kChunk * kRanks, kChunk, 0, 1, 16)});
      const Program program = divide(whole);
      for (int process = 0; process < program.processes(); ++process) {
        for (const Step& step : program.traces[process]) {
          for (int i = 0; i < peers_in(step.flow.from, kRanks); ++i) {
            use(program, process, incoming_peer(step, program.rank_of(process), i), step.stream_in, false);
          }
          for (int i = 0; i < peers_in(step.flow.to, kRanks); ++i) {
            use(program, process, outgoing_peer(step, program.rank_of(process), kRanks, i), step.stream_out, true);
          }
        }
      }
    }
  });
  return shared;
}

TEST(Parts, OfAllReductionsUseConnectionsAlikeSoThatCtasMayGoOnWithTheNext) { EXPECT_EQ(shared_ends(true), 0); }

TEST(Parts, OfCopiesDoNot) { EXPECT_GT(shared_ends(false), 0); }

/// Rank 0 sends to rank 1 on two streams, each from a part of its own; rank 1 takes first what comes on the second.
Program on_two_streams() {
  Program program{.task = {.ranks = 2}, .traces = std::vector<Trace>(4), .parts = 2, .streams = 2};
  for (int part = 0; part < 2; ++part) {
    Recorder sender(0, program.task);
    for (size_t k = 0; k < 2; ++k) sender.send(1, input(k, 1));
    program.traces[program.process_of(0, part)] = sender.take();
    for (Step& step : program.traces[program.process_of(0, part)]) step.stream_out = part;
  }
  Recorder receiver(1, program.task);
  for (size_t k = 0; k < 4; ++k) receiver.recv(0, output(k, 1));
  Trace& receives = program.traces[program.process_of(1, 0)];
  receives = receiver.take();
  for (size_t k = 0; k < 2; ++k) receives[k].stream_in = 1;
  return program;
}

TEST(Parts, PutIntoStreamsThatAreQueuesOfTheirOwn) {
  const Program program = on_two_streams();
  Replay replay(program, 1);
  std::vector<int> streams;
  replay.run([](const std::vector<int>&) { return 0; },
             [&](const Replay::Event& event) {
               for (const int index : event.incoming) streams.push_back(replay.connections()[index].stream);
             });
  EXPECT_EQ(streams, (std::vector<int>{1, 1, 0, 0}));
  for (int process = 0; process < 4; ++process) EXPECT_TRUE(replay.ended(process));
  EXPECT_EQ(replay.connections().size(), 2u);
}

TEST(Parts, GoOnWhenNoOtherCanIfTheyStarve) {
  const Program program = on_two_streams();
  Replay replay(program, 2);
  std::vector<int> order;
  replay.run([](const std::vector<int>&) { return 0; },
             [&](const Replay::Event& event) { order.push_back(event.process); },
             [](int process) { return process == 1; });
  // Part 1 of rank 0 comes last, and again only after what it sent was taken.
  EXPECT_EQ(order, (std::vector<int>{0, 0, 1, 2, 1, 2, 2, 2}));
}

}  // namespace
}  // namespace nitinol::algorithm
