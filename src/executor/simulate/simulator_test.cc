#include "executor/simulate/simulator.h"

#include <gtest/gtest.h>

namespace nitinol::simulate {
namespace {

using algorithm::Program;
using algorithm::Recorder;
using algorithm::Task;

Program program_of(Collective what, Algorithm algorithm, int ranks, size_t count, size_t chunk) {
  return algorithm::record(algorithm, Task{what, ranks, 0, share_of(count, chunk, 0, 1, 1)});
}

/// One microsecond of latency, 100 bytes per microsecond.
TopologyModel plain_model() {
  TopologyModel model;
  model.local = {.latency_us = 1, .bytes_per_us = 100};
  return model;
}

TEST(Simulate, AMessageTakesItsTimeOnTheLinkAndTheLatency) {
  const Program program = program_of(Collective::kBroadcast, Algorithm::kOneShot, 2, 1000, 1000);
  EXPECT_DOUBLE_EQ(simulate(program, plain_model()), 11);
  TopologyModel doubles = plain_model();
  doubles.element_bytes = 8;
  EXPECT_DOUBLE_EQ(simulate(program, doubles), 81);
}

TEST(Simulate, StartAndStepsAndMemoryCount) {
  const Program program = program_of(Collective::kBroadcast, Algorithm::kOneShot, 2, 1000, 1000);
  TopologyModel model = plain_model();
  model.start_us = 2;
  model.step_us = 0.5;
  // 2 + 0.5, 10 on the link, 1 of latency, 0.5 for the receiver's step.
  EXPECT_DOUBLE_EQ(simulate(program, model), 14);
  model.memory_bytes_per_us = 500;
  // The root reads and writes 1000 bytes each, and so does the receiver: 4 each.
  EXPECT_DOUBLE_EQ(simulate(program, model), 22);
}

TEST(Simulate, APortSendsOneMessageAtATime) {
  const Program program = program_of(Collective::kBroadcast, Algorithm::kOneShot, 4, 1000, 1000);
  EXPECT_DOUBLE_EQ(simulate(program, plain_model()), 31);
}

TEST(Simulate, APortReceivesOneMessageAtATime) {
  const Program program = program_of(Collective::kGather, Algorithm::kOneShot, 4, 1000, 1000);
  EXPECT_DOUBLE_EQ(simulate(program, plain_model()), 31);
}

TEST(Simulate, SlotsLetMessagesFollowEachOther) {
  const Program program = program_of(Collective::kBroadcast, Algorithm::kOneShot, 2, 3000, 1000);
  TopologyModel model = plain_model();
  EXPECT_DOUBLE_EQ(simulate(program, model), 31);
  model.slots = 1;  // each message waits for the news that the one before was taken: 12 from one to the next
  EXPECT_DOUBLE_EQ(simulate(program, model), 35);
}

TEST(Simulate, RanksOfAHostShareItsNetworkPorts) {
  Program program{Task{.ranks = 4}, {}};
  for (int rank = 0; rank < 4; ++rank) {  // 0 -> 2 and 1 -> 3, from one host to the other
    Recorder recorder(rank, program.task);
    if (rank < 2) {
      recorder.send(rank + 2, algorithm::input(0, 1000));
    } else {
      recorder.recv(rank - 2, algorithm::output(0, 1000));
    }
    program.traces.push_back(recorder.take());
  }
  TopologyModel model = plain_model();
  model.network = {.latency_us = 5, .bytes_per_us = 50};
  EXPECT_DOUBLE_EQ(simulate(program, model), 11);  // all on one host
  model.ranks_per_host = 2;
  EXPECT_DOUBLE_EQ(simulate(program, model), 45);
  model.network_ports_per_host = 2;
  EXPECT_DOUBLE_EQ(simulate(program, model), 25);
}

TEST(Simulate, ChannelsShareThePorts) {
  std::vector<Program> channels;
  for (int channel = 0; channel < 2; ++channel) {
    const Task task{Collective::kBroadcast, 2, 0, share_of(1000, 1000, channel, 2, 1)};
    channels.push_back(algorithm::record(Algorithm::kOneShot, task));
  }
  EXPECT_DOUBLE_EQ(simulate(channels, plain_model()), 11);
}

TEST(Simulate, NothingToDoTakesTheStart) {
  TopologyModel model = plain_model();
  model.start_us = 3;
  EXPECT_DOUBLE_EQ(simulate(std::vector<Program>{}, model), 3);
  EXPECT_DOUBLE_EQ(simulate(program_of(Collective::kAllReduce, Algorithm::kOneShot, 2, 0, 10), model), 3);
}

TEST(Simulate, TellsWhichAlgorithmSuitsASize) {
  const auto time_of = [](Algorithm algorithm, size_t count) {
    return simulate(program_of(Collective::kAllReduce, algorithm, 8, count, 4096), plain_model());
  };
  // 7 messages of 16 bytes one after the other, once or twice.
  EXPECT_DOUBLE_EQ(time_of(Algorithm::kOneShot, 16), 7 * 0.16 + 1);
  EXPECT_DOUBLE_EQ(time_of(Algorithm::kTwoShot, 128), 2 * (7 * 0.16 + 1));
  EXPECT_LT(time_of(Algorithm::kOneShot, 16), time_of(Algorithm::kRing, 128));
  EXPECT_LT(time_of(Algorithm::kTwoShot, 1 << 16), time_of(Algorithm::kOneShot, 1 << 16) / 2);
}

TEST(Simulate, TenThousandRanksInATree) {
  TopologyModel model;
  model.local.latency_us = 1;
  EXPECT_DOUBLE_EQ(simulate(program_of(Collective::kBroadcast, Algorithm::kTree, 10000, 8, 8), model), 13);
  EXPECT_DOUBLE_EQ(simulate(program_of(Collective::kAllReduce, Algorithm::kTree, 10000, 8, 8), model), 26);
  model.ranks_per_host = 8;  // ranks 0 to 7 make the tree's three upper levels
  model.network.latency_us = 10;
  EXPECT_DOUBLE_EQ(simulate(program_of(Collective::kBroadcast, Algorithm::kTree, 10000, 8, 8), model), 112);
}

TEST(Simulate, AThousandRanksInARing) {
  TopologyModel model;
  model.local.latency_us = 1;
  EXPECT_DOUBLE_EQ(simulate(program_of(Collective::kBroadcast, Algorithm::kRing, 1000, 8, 8), model), 999);
  EXPECT_DOUBLE_EQ(simulate(program_of(Collective::kAllReduce, Algorithm::kRing, 1000, 16 * 10, 16), model), 2 * 999);
}

TEST(Simulate, IsDeterministic) {
  const Program program = program_of(Collective::kAllToAll, Algorithm::kOneShot, 50, 1000, 100);
  const double time = simulate(program, plain_model());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(simulate(program, plain_model()), time);
}

}  // namespace
}  // namespace nitinol::simulate
