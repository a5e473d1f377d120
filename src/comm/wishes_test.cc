#include "comm/wishes.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "base/settings_testing.h"

namespace nitinol {
namespace {

Wishes with(const char* algorithms, const char* protocols) {
  const ScopedVariable algo("NCCL_ALGO", algorithms);
  const ScopedVariable proto("NCCL_PROTO", protocols);
  return own_wishes(Config{});
}

Wishes within(int32_t min_ctas, int32_t max_ctas) {
  Config config;
  config.min_ctas = min_ctas;
  config.max_ctas = max_ctas;
  return own_wishes(config);
}

TEST(Wishes, AreTheSameHoweverTheyAreWritten) {
  for (const auto& [one, other] : std::initializer_list<std::array<const char*, 2>>{
           {"ring,tree", "Tree,RING,ring"},
           {"^oneshot,twoshot", "ring,tree"},
           {"nvls", "PAT"},
           {"ring;allreduce:tree", "RING;AllReduce:Tree"},
           {"allreduce:ring;reduce:tree", "reduce:tree;allreduce:ring"}}) {
    EXPECT_EQ(with(one, nullptr), with(other, nullptr)) << one << " and " << other;
  }
  EXPECT_EQ(with(nullptr, "^LL"), with(nullptr, "simple,ll128"));
  EXPECT_EQ(with(nullptr, "LL,LL128,Simple"), with(nullptr, nullptr));
}

TEST(Wishes, DifferWhereTheChoiceMay) {
  EXPECT_NE(with("ring", nullptr), with("tree", nullptr));
  EXPECT_NE(with("ring", nullptr), with("allreduce:ring", nullptr));
  EXPECT_NE(with(nullptr, "LL"), with(nullptr, "LL128"));
  // Who names them permits any order of sums.
  EXPECT_NE(with("oneshot,twoshot,ring,tree", nullptr), with(nullptr, nullptr));
}

TEST(Wishes, BecomeTheRulesThatTheTextsSay) {
  const Rules rules = rules_of(with("allreduce:ring", "LL"));
  const auto all_reduce = static_cast<size_t>(Collective::kAllReduce);
  const auto reduce = static_cast<size_t>(Collective::kReduce);
  EXPECT_EQ(rules.algorithms[all_reduce], 1U << static_cast<int>(Algorithm::kRing));
  EXPECT_EQ(rules.algorithms[reduce], (1U << kAlgorithms) - 1);
  EXPECT_TRUE(rules.algorithms_named[all_reduce]);
  EXPECT_FALSE(rules.algorithms_named[reduce]);
  EXPECT_EQ(rules.protocols[reduce], 1U << static_cast<int>(Protocol::kLL));
  EXPECT_TRUE(rules.reproducible);
  EXPECT_EQ(rules_of(within(3, 8)).min_channels, 3);
  EXPECT_EQ(rules_of(within(3, 8)).max_channels, 8);
}

TEST(Wishes, OfRankZeroCountWhereTheyContradictEachOther) {
  std::vector<Wishes> all{with(nullptr, "LL"), with("allreduce:tree", nullptr)};
  all[1].buffer_bytes = 1 << 20;
  all[1].cluster_ctas = 2;
  EXPECT_EQ(agreed_wishes(all), all[0]);
  EXPECT_EQ(told_differences(all[0], agreed_wishes(all)), "");
  EXPECT_EQ(told_differences(all[1], agreed_wishes(all)),
            "NCCL_ALGO as on rank 0, NCCL_PROTO as on rank 0, NCCL_BUFFSIZE as on rank 0, NCCL_CGA_CLUSTER_SIZE as on "
            "rank 0");
}

TEST(Wishes, LimitsOfCtasAreKeptForEverybody) {
  const std::vector<Wishes> all{within(0, 0), within(4, 16), within(6, 24)};
  const Wishes agreed = agreed_wishes(all);
  EXPECT_EQ(agreed.min_ctas, 6);
  EXPECT_EQ(agreed.max_ctas, 16);
  EXPECT_EQ(told_differences(all[0], agreed), "at least 6 CTAs, at most 16 CTAs");
  EXPECT_EQ(told_differences(all[1], agreed), "at least 6 CTAs");
  EXPECT_EQ(agreed_wishes(std::vector<Wishes>{within(8, 0), within(0, 2)}), within(2, 2)) << "the most is the limit";
}

TEST(Wishes, OfOneForSumsInRankOrderAreThoseOfAll) {
  const auto free = [] {
    const ScopedVariable any("NITINOL_REPRODUCIBLE", "0");
    return own_wishes(Config{});
  }();
  const Wishes ordered = own_wishes(Config{});
  EXPECT_EQ(agreed_wishes(std::vector<Wishes>{free, ordered}), ordered);
  EXPECT_EQ(told_differences(free, ordered), "NITINOL_REPRODUCIBLE=1");
  EXPECT_EQ(agreed_wishes(std::vector<Wishes>{free, free}), free);
}

TEST(Wishes, ThatCannotBeBecomePossibleLimits) {
  Wishes odd;
  odd.min_ctas = -5;
  odd.max_ctas = 1 << 30;
  odd.cluster_ctas = 1 << 30;
  const Wishes agreed = agreed_wishes(std::vector<Wishes>{odd});
  EXPECT_EQ(agreed.min_ctas, 0);
  EXPECT_EQ(agreed.max_ctas, kMostCtas);
  EXPECT_EQ(agreed.cluster_ctas, kMostCtasOfCluster);
}

}  // namespace
}  // namespace nitinol
