#include "executor/cuda/ways.h"

#include <gtest/gtest.h>

namespace nitinol::cuda {
namespace {

TEST(Ways, BetweenTwoLinkedGpusAreNeitherPartsNorLinesThatMayBreak) {
  const Ways ways = ways_of(sizes_for({.ranks = 2, .multiprocessors = 132, .bulk_bytes = size_t{227} << 10}));
  for (const Collective what : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllToAll}) {
    for (const Way way : {Way::kLL16, Way::kApart, Way::kJoined}) EXPECT_FALSE(ways.has(what, way));
    for (const Way way : {Way::kLL, Way::kLL128, Way::kSimple, Way::kSmall, Way::kBriefLL, Way::kBriefLL128}) {
      EXPECT_TRUE(ways.has(what, way));
    }
  }
}

TEST(Ways, ThroughHostMemoryAreNoneThatNeedWholeLines) {
  const Ways ways =
      ways_of(sizes_for({.ranks = 2, .multiprocessors = 132, .lines_stay_whole = false, .in_host_memory = true}));
  for (const Way way : {Way::kLL128, Way::kBriefLL128, Way::kSmall, Way::kApart}) {
    EXPECT_FALSE(ways.has(Collective::kAllReduce, way));
  }
  EXPECT_TRUE(ways.has(Collective::kAllReduce, Way::kLL16));
}

TEST(Ways, WithFewCtasBetweenFourJoinParts) {
  Machine machine{.ranks = 4, .multiprocessors = 132, .bulk_bytes = size_t{227} << 10, .max_channels = 24};
  EXPECT_TRUE(ways_of(sizes_for(machine)).has(Collective::kAllReduce, Way::kJoined));
  machine.max_channels = 0;
  EXPECT_FALSE(ways_of(sizes_for(machine)).has(Collective::kAllReduce, Way::kJoined));
}

}  // namespace
}  // namespace nitinol::cuda
