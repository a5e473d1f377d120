#include "algorithm/cost.h"

#include <gtest/gtest.h>

namespace nitinol::algorithm {
namespace {

Cost cost_of(Collective what, Algorithm algorithm, int ranks, size_t count, size_t chunk) {
  return cost(record(algorithm, Task{what, ranks, 0, share_of(count, chunk, 0, 1, 16)}));
}

TEST(Cost, OfOneShotIsOneHopAndAllDataToEverybody) {
  const Cost found = cost_of(Collective::kAllReduce, Algorithm::kOneShot, 8, 100, 1000);
  EXPECT_EQ(found.steps, 2u);
  EXPECT_EQ(found.messages_sent, 7u);
  EXPECT_EQ(found.messages_received, 7u);
  EXPECT_EQ(found.elements_sent, 700u);
  EXPECT_EQ(found.elements_received, 700u);
  EXPECT_EQ(found.elements_reduced, 700u);
  EXPECT_EQ(found.elements_touched, 100u + 800u + 100u);
  EXPECT_EQ(found.hops, 1u);
}

TEST(Cost, OfTwoShotIsTwoHopsAndTwiceTheDataButOneBlock) {
  const Cost found = cost_of(Collective::kAllReduce, Algorithm::kTwoShot, 8, 8 * 16, 16);
  EXPECT_EQ(found.hops, 2u);
  EXPECT_EQ(found.messages_sent, 14u);
  EXPECT_EQ(found.elements_sent, 2u * 7 * 16);
  EXPECT_EQ(found.elements_reduced, 7u * 16);
}

TEST(Cost, OfARingIsManyHops) {
  const Cost found = cost_of(Collective::kAllReduce, Algorithm::kRing, 8, 8 * 16, 16);
  EXPECT_EQ(found.hops, 2u * 7);
  EXPECT_EQ(found.elements_sent, 2u * 7 * 16);
  EXPECT_EQ(cost_of(Collective::kBroadcast, Algorithm::kRing, 8, 10, 10).hops, 7u);
}

TEST(Cost, OfATreeIsItsDepth) {
  EXPECT_EQ(cost_of(Collective::kBroadcast, Algorithm::kTree, 7, 10, 10).hops, 2u);
  EXPECT_EQ(cost_of(Collective::kBroadcast, Algorithm::kTree, 8, 10, 10).hops, 3u);
  EXPECT_EQ(cost_of(Collective::kAllReduce, Algorithm::kTree, 1023, 10, 10).hops, 18u);
}

TEST(Record, KnowsTheRowsOfTheTableOnly) {
  const Task task{Collective::kAllToAll, 3, 0, share_of(10, 4, 0, 1, 1)};
  EXPECT_EQ(record(Algorithm::kOneShot, task).traces.size(), 3u);
  EXPECT_TRUE(record(Algorithm::kTree, task).traces.empty());
}

}  // namespace
}  // namespace nitinol::algorithm
