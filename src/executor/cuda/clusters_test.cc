#include "executor/cuda/clusters.h"

#include <gtest/gtest.h>

namespace nitinol::cuda {
namespace {

constexpr size_t kLong = size_t{16} << 20;

TEST(Clusters, OfFewCtasHaveFour) {
  for (const int ctas : {8, 16, 24, 32}) EXPECT_EQ(ctas_of_cluster(-1, ctas, kLong), 4) << ctas;
}

TEST(Clusters, AreNotFormedForShortOperationsUnlessTheUserAsksForThem) {
  EXPECT_EQ(ctas_of_cluster(-1, 16, 65536), 1);
  EXPECT_EQ(ctas_of_cluster(4, 16, 65536), 4);
}

TEST(Clusters, AreNotFormedWhereTheyDoNotHelp) {
  for (const int ctas : {1, 2, 4, 7, 9, 30, 36, 64, 128}) EXPECT_EQ(ctas_of_cluster(-1, ctas, kLong), 1) << ctas;
}

TEST(Clusters, AreAsLargeAsAskedForWhereThatDividesTheCtas) {
  EXPECT_EQ(ctas_of_cluster(8, 64, kLong), 8);
  EXPECT_EQ(ctas_of_cluster(2, 64, kLong), 2);
  EXPECT_EQ(ctas_of_cluster(8, 12, kLong), 6);
  EXPECT_EQ(ctas_of_cluster(4, 2, kLong), 2);
  EXPECT_EQ(ctas_of_cluster(4, 13, kLong), 1);
}

TEST(Clusters, AreNotFormedIfTheUserDoesNotWantThem) {
  for (const int asked : {0, 1}) EXPECT_EQ(ctas_of_cluster(asked, 24, kLong), 1) << asked;
}

}  // namespace
}  // namespace nitinol::cuda
