#include "executor/simulate/estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "algorithm/table.h"

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

TEST(Estimate, IsThereForWhateverMayBePlanned) {
  algorithm::Table::for_each([](auto entry) {
    constexpr algorithm::Row row = decltype(entry)::row;
    for (const int ranks : {2, 3, 8}) {
      double before = 0;
      for (const size_t count : {1, 1000, 100'000, 10'000'000}) {
        const double us = estimate(work_of(row.what, row.algorithm, count, 5000, 3), ranks, 16, plain_model());
        EXPECT_GT(us, before) << static_cast<int>(row.what) << " " << static_cast<int>(row.algorithm) << ", " << ranks
                              << " ranks, " << count;
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
  model.memory_bytes_per_us = 50;
  CollectiveWork work = work_of(Collective::kAllReduce, Algorithm::kOneShot, 100, 100);
  work.input = &data[0];
  work.output = &data[1];
  EXPECT_DOUBLE_EQ(estimate(work, 1, 1, model), 2 + 2 * 100 / 50);
  work.output = &data[0];
  EXPECT_DOUBLE_EQ(estimate(work, 1, 1, model), 2);
}

TEST(Estimate, MessagesOfBothDirectionsGoAtTheSameTime) {
  using Direction = MessageWork::Direction;
  TopologyModel model = plain_model();
  model.memory_bytes_per_us = 10;
  const auto message = [](Direction direction, int peer, size_t bytes) {
    return MessageWork{.direction = direction, .peer = peer, .bytes = bytes};
  };
  const std::vector<MessageWork> out{message(Direction::kSend, 1, 200), message(Direction::kSend, 2, 100)};
  EXPECT_DOUBLE_EQ(estimate(out, 0, model), 2 + 1 + 3);
  std::vector<MessageWork> both = out;
  both.push_back(message(Direction::kReceive, 1, 400));
  EXPECT_DOUBLE_EQ(estimate(both, 0, model), 2 + 1 + 4);
  const std::vector<MessageWork> to_self{message(Direction::kSend, 0, 200), message(Direction::kReceive, 0, 200)};
  EXPECT_DOUBLE_EQ(estimate(to_self, 0, model), 2 + 2 * 200 / 10);
}

}  // namespace
}  // namespace nitinol::simulate
