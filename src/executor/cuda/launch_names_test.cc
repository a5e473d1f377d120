#include "executor/cuda/launch_names.h"

#include <gtest/gtest.h>

namespace nitinol::cuda {
namespace {

MessageBatch batch_of(std::initializer_list<Lane> lanes) {
  MessageBatch batch;
  batch.lanes = lanes;
  return batch;
}

TEST(LaunchNames, OfMessagesSayForWhomTheyAre) {
  const NamedLaunch launch = messages_of(batch_of({{.peer = 5, .sends = 1}, {.peer = 70}, {.peer = 70, .channel = 1}}));
  RankSet fifth;
  RankSet seventieth;
  fifth.add(5);
  seventieth.add(70);
  EXPECT_EQ(launch.count, 0U);
  EXPECT_EQ(launch.sends_to, fifth);
  EXPECT_EQ(launch.receives_from, seventieth);
}

TEST(LaunchNames, OfMessagesOfSeveralProtocolsSayForWhomAllAre) {
  MessagePlan plan;
  plan[1] = {batch_of({{.peer = 1, .sends = 1}, {.peer = 2}})};
  plan[2] = {batch_of({{.peer = 3, .sends = 1}})};
  const NamedLaunch launch = messages_of(plan);
  for (int rank = 0; rank < RankSet::kMostRanks; ++rank) {
    EXPECT_EQ(launch.sends_to.has(rank), rank == 1 || rank == 3) << rank;
    EXPECT_EQ(launch.receives_from.has(rank), rank == 2) << rank;
  }
}

TEST(LaunchNames, OfCollectivesLeaveOutThoseWithoutElements) {
  CollectiveWork work;
  work.count = 7;
  const CollectiveWork works[] = {work, CollectiveWork{}, work};
  const NamedLaunch launch = collectives_of(works);
  EXPECT_EQ(launch.count, 2U);
  EXPECT_EQ(launch.collectives[1].count, Signature::of(work, 0).count);
}

}  // namespace
}  // namespace nitinol::cuda
