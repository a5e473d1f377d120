#include "executor/rank_set.h"

#include <gtest/gtest.h>

namespace nitinol {
namespace {

TEST(RankSet, KnowsItsLastRank) {
  RankSet ranks;
  EXPECT_EQ(ranks.last(), -1);
  for (const int rank : {0, 1, 63, 64, RankSet::kMostRanks - 1}) {
    ranks.add(rank);
    EXPECT_EQ(ranks.last(), rank);
  }
  ranks.remove(RankSet::kMostRanks - 1);
  ranks.remove(64);
  EXPECT_EQ(ranks.last(), 63);
}

}  // namespace
}  // namespace nitinol
