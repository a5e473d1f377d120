#include "executor/simulate/estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "algorithm/table.h"
#include "executor/simulate/simulator.h"

namespace nitinol::simulate {
namespace {

/// One microsecond of latency, 100 bytes per microsecond, two before the first transfer.
TopologyModel plain_model() {
  TopologyModel model;
  model.local = {.latency_us = 1, .bytes_per_us = 100};
  model.start_us = 2;
  return model;
}

CollectiveWork work_of(Collective what, Algorithm algorithm, size_t count, size_t chunk, int channels = 1) {
  CollectiveWork work;
  work.what = what;
  work.count = count;
  work.plan = {.algorithm = algorithm, .channels = channels, .chunk = chunk};
  return work;
}

TEST(Estimate, OfAShortCollectiveIsWhatTheSimulatorSays) {
  const CollectiveWork work = work_of(Collective::kBroadcast, Algorithm::kOneShot, 1000, 1000);
  EXPECT_DOUBLE_EQ(estimate(work, 2, 1, plain_model()), 2 + 10 + 1);
  CollectiveWork doubles = work;
  doubles.type = DataType::kFloat64;
  EXPECT_DOUBLE_EQ(estimate(doubles, 2, 1, plain_model()), 2 + 80 + 1);
}

TEST(Estimate, ChannelsShareTheLink) {
  for (const int channels : {1, 2, 5}) {
    const CollectiveWork work = work_of(Collective::kBroadcast, Algorithm::kOneShot, 1000, 1000, channels);
    EXPECT_DOUBLE_EQ(estimate(work, 2, 1, plain_model()), 13) << channels << " channels";
  }
  // Three grains for five channels: only three have any, and one that is full stands for them.
  const CollectiveWork few = work_of(Collective::kBroadcast, Algorithm::kOneShot, 900, 1000, 5);
  EXPECT_DOUBLE_EQ(estimate(few, 2, 300, plain_model()), 2 + 9 + 1);
}

TEST(Estimate, OfALongCollectiveGoesOnAsItsFirstChunksDo) {
  constexpr size_t kChunk = 100;
  TopologyModel model = plain_model();
  model.slots = 8;  // so that no chunk waits for news of the ones before
  for (const size_t chunks : {64, 65, 1000, 1'000'000}) {
    const CollectiveWork work = work_of(Collective::kBroadcast, Algorithm::kOneShot, chunks * kChunk, kChunk);
    const auto bytes = static_cast<double>(chunks * kChunk);
    EXPECT_NEAR(estimate(work, 2, 1, model), 2 + bytes / 100 + 1, 1e-6 * bytes) << chunks << " chunks";
  }
}

/// All channels and rounds, one after the other.
double simulated_whole(const CollectiveWork& work, int ranks, const TopologyModel& model) {
  std::vector<algorithm::Program> programs;
  for (int channel = 0; channel < work.plan.channels; ++channel) {
    Share share = share_of(work.count, work.plan.chunk, channel, work.plan.channels, 1);
    share.turn = algorithm::turn_of(channel, ranks);
    programs.push_back(algorithm::record(work.plan.algorithm, {work.what, ranks, work.root, share}));
  }
  return simulate(programs, model);
}

TEST(Estimate, OfAFewRoundsIsNearToWhatAllOfThemTake) {
  TopologyModel model = plain_model();
  model.slots = 4;
  algorithm::Table::for_each([&](auto entry) {
    constexpr algorithm::Row row = decltype(entry)::row;
    for (const int ranks : {3, 8, 37}) {
      const auto n = static_cast<size_t>(ranks);
      const size_t chunks = ranks > 8 ? 20 * n : 300 * n;  // more than are sampled where rounds are of all ranks
      const CollectiveWork work = work_of(row.what, row.algorithm, chunks * 50, 50);
      const double whole = simulated_whole(work, ranks, model);
      EXPECT_NEAR(estimate(work, ranks, 1, model) / whole, 1, 0.15)
          << name_of(row.what) << " by " << name_of(row.algorithm) << " between " << ranks;
    }
  });
}

TEST(Estimate, OfFourChannelsIsNearToThatOfAll) {
  TopologyModel model = plain_model();
  model.slots = 4;
  model.memory_bytes_per_us = 1000;
  algorithm::Table::for_each([&](auto entry) {
    constexpr algorithm::Row row = decltype(entry)::row;
    const CollectiveWork work = work_of(row.what, row.algorithm, 16 * 1000, 50, 16);
    TopologyModel of_a_channel = model;  // simulate() gives each channel the whole rate
    of_a_channel.memory_bytes_per_us /= 16;
    EXPECT_NEAR(estimate(work, 4, 1, model) / simulated_whole(work, 4, of_a_channel), 1, 0.25)
        << name_of(row.what) << " by " << name_of(row.algorithm);
  });
}

TEST(Estimate, IsThereForWhateverMayBePlanned) {
  algorithm::Table::for_each([](auto entry) {
    constexpr algorithm::Row row = decltype(entry)::row;
    for (const int ranks : {2, 3, 8}) {
      double before = 0;
      for (const size_t count : {1, 1000, 100'000, 10'000'000}) {
        const double us = estimate(work_of(row.what, row.algorithm, count, 5000, 3), ranks, 16, plain_model());
        EXPECT_GT(us, before) << name_of(row.what) << " by " << name_of(row.algorithm) << ", " << ranks << " ranks, "
                              << count;
        before = us;
      }
    }
  });
}

TEST(Estimate, OfNothingIsNothing) {
  EXPECT_EQ(estimate(work_of(Collective::kAllReduce, Algorithm::kOneShot, 0, 100), 2, 1, plain_model()), 0);
  EXPECT_EQ(estimate({}, 0, plain_model()), 0);
}

TEST(Estimate, OfOneRankIsACopyUnlessItIsInPlace) {
  int data[2];
  TopologyModel model = plain_model();
  model.copy_bytes_per_us = 25;
  CollectiveWork work = work_of(Collective::kAllReduce, Algorithm::kOneShot, 100, 100);
  work.input = &data[0];
  work.output = &data[1];
  EXPECT_DOUBLE_EQ(estimate(work, 1, 1, model), 2 + 100 / 25);
  work.output = &data[0];
  EXPECT_DOUBLE_EQ(estimate(work, 1, 1, model), 2);
}

TEST(Estimate, MessagesOfBothDirectionsGoAtTheSameTime) {
  using Direction = MessageWork::Direction;
  TopologyModel model = plain_model();
  model.copy_bytes_per_us = 5;
  const auto message = [](Direction direction, int peer, size_t bytes) {
    return MessageWork{.direction = direction, .peer = peer, .bytes = bytes};
  };
  const std::vector<MessageWork> out{message(Direction::kSend, 1, 200), message(Direction::kSend, 2, 100)};
  EXPECT_DOUBLE_EQ(estimate(out, 0, model), 2 + 1 + 3);
  std::vector<MessageWork> both = out;
  both.push_back(message(Direction::kReceive, 1, 400));
  EXPECT_DOUBLE_EQ(estimate(both, 0, model), 2 + 1 + 4);
  const std::vector<MessageWork> to_self{message(Direction::kSend, 0, 200), message(Direction::kReceive, 0, 200)};
  EXPECT_DOUBLE_EQ(estimate(to_self, 0, model), 2 + 200 / 5);
}

}  // namespace
}  // namespace nitinol::simulate
