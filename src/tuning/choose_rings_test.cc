// Which broadcasts and reduces go in a ring.
#include <gtest/gtest.h>

#include "tuning/choose.h"
#include "tuning/questions_testing.h"

namespace nitinol {
namespace {

TEST(ChooseRings, LargeBroadcastsMayGoInARing) {
  Question question = all_reduce(8192);
  Limits crossed = limits();
  crossed.broadcast_ring_bytes = 4 * 8192;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kTwoShot);
  question.what = Collective::kBroadcast;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kRing);
  EXPECT_EQ(choose(question, limits(), Rules::any()).algorithm, Algorithm::kTwoShot);
  question.count = 8191;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kTwoShot);
  question.count = 8192;
  Rules rules = Rules::any();
  restrict_algorithms("broadcast:^ring", rules);
  EXPECT_EQ(choose(question, crossed, rules).algorithm, Algorithm::kTwoShot);
}

TEST(ChooseRings, BroadcastsGoInARingByLL128OrBySmallCtasOnly) {
  Limits crossed = limits();
  crossed.broadcast_ring_bytes = 1;
  Question question = all_reduce(1 << 18);
  question.what = Collective::kBroadcast;
  const auto ring = [&](const Rules& rules) { return choose(question, crossed, rules).algorithm == Algorithm::kRing; };
  Rules without = Rules::any();
  restrict_protocols("^LL128", without);
  question.count = 8 * 8192;
  EXPECT_TRUE(ring(Rules::any()));
  EXPECT_FALSE(ring(without));
  question.count += 8;
  EXPECT_FALSE(ring(Rules::any())) << "too long for LL128";
  crossed.line = {100, 8192};
  crossed.small_bytes.fill(1);
  EXPECT_TRUE(ring(Rules::any()));
  EXPECT_TRUE(ring(without));
  Rules few = Rules::any();
  few.max_channels = 8;
  EXPECT_FALSE(ring(few));
}

TEST(ChooseRings, LongSumsToOneOfTheFirstTwoRanksOrTheLastGoInARingByLL128) {
  Limits crossed = limits();
  crossed.reduce_ring.bytes = crossed.reduce_ring_back.bytes = 4 * 8192;
  const auto goes_in_ring = [&](const Question& question, const Rules& rules = Rules::any()) {
    return choose(question, crossed, rules).algorithm == Algorithm::kRing;
  };
  for (const int root : {0, 1, 7}) {
    for (const size_t count : {size_t{8192}, size_t{1} << 30}) {
      const Plan plan = choose(reduce(count, root), crossed, Rules::any());
      EXPECT_EQ(plan.algorithm, Algorithm::kRing);
      EXPECT_EQ(plan.protocol, Protocol::kLL128) << "however long it is";
    }
    EXPECT_FALSE(goes_in_ring(reduce(8191, root)));
    EXPECT_EQ(choose(reduce(1 << 30, root), limits(), Rules::any()).algorithm, Algorithm::kTwoShot);
  }
  EXPECT_FALSE(goes_in_ring(reduce(8192, 3))) << "it would not be in the order of ranks";
  Rules any_order = Rules::any();
  any_order.reproducible = false;
  EXPECT_FALSE(goes_in_ring(reduce(8192, 3), any_order)) << "nobody has measured that";
  Question question = reduce(1 << 20, 0);
  question.type = DataType::kFloat64;
  EXPECT_TRUE(goes_in_ring(question));
  question.type = DataType::kBfloat16;
  EXPECT_FALSE(goes_in_ring(question)) << "partial sums would be rounded";
  question.sum = false;
  EXPECT_FALSE(goes_in_ring(question)) << "so would partial products";
  question = reduce(8192, 0);
  question.sum = false;
  EXPECT_TRUE(goes_in_ring(question)) << "products of floats have kernels, and keep to the order";
  question.root = 3;
  EXPECT_FALSE(goes_in_ring(question));
  Rules without = Rules::any();
  restrict_protocols("^LL128", without);
  EXPECT_FALSE(goes_in_ring(reduce(8192, 0), without));
}

TEST(ChooseRings, WhereOrderDoesNotMatterAllRootsHaveARingThatDoesNotComeBack) {
  Limits crossed = limits();
  crossed.reduce_ring.bytes = 4 * 8192;
  crossed.reduce_ring_back.bytes = SIZE_MAX;
  for (const DataType type : {DataType::kInt32, DataType::kBfloat16, DataType::kFloat8E4m3}) {
    for (int root = 0; root < 8; ++root) {
      Question question = reduce(4 * 8192 / bytes_of(type), root);
      question.type = type;
      question.order_free = true;
      question.sum = !is_float(type);
      EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kRing) << root;
      --question.count;
      EXPECT_NE(choose(question, crossed, Rules::any()).algorithm, Algorithm::kRing) << root;
    }
  }
}

TEST(ChooseRings, OnlyWhatMayBeBriefInTwoShotsGoesInARingLater) {
  Limits crossed = limits();
  crossed.reduce_ring.bytes = 4 * 8192;
  crossed.reduce_ring.brief_bytes = 4 * 16384;
  const auto goes_in_ring = [&](const Question& question) {
    return choose(question, crossed, Rules::any()).algorithm == Algorithm::kRing;
  };
  EXPECT_FALSE(goes_in_ring(reduce(16383, 7)));
  EXPECT_TRUE(goes_in_ring(reduce(16384, 7)));
  Question question = reduce(8192, 7);
  question.type = DataType::kInt32;
  EXPECT_TRUE(goes_in_ring(question));
  question.type = DataType::kFloat32;
  question.sum = false;
  EXPECT_TRUE(goes_in_ring(question));
}

TEST(ChooseRings, SumsGoInARingSoonerIfTheyNeedNotComeBack) {
  Limits crossed = limits();
  crossed.reduce_ring.bytes = 4 * 8192;
  crossed.reduce_ring_back.bytes = 4 * 16384;
  const auto goes_in_ring = [&](size_t count, int root) {
    return choose(reduce(count, root), crossed, Rules::any()).algorithm == Algorithm::kRing;
  };
  EXPECT_TRUE(goes_in_ring(8192, 7));
  for (const int root : {0, 1}) {
    EXPECT_FALSE(goes_in_ring(16383, root));
    EXPECT_TRUE(goes_in_ring(16384, root));
  }
}

/// As through host memory, where there is no LL128.
Limits limits_without_ll128() {
  Limits cut = limits();
  cut.slot_bytes[static_cast<size_t>(Protocol::kLL128)] = 0;
  return cut;
}

TEST(ChooseRings, BroadcastsGoInARingInLinesUpToTheirLimit) {
  Limits lines = limits_without_ll128();
  lines.broadcast_ring_bytes = 8192;
  lines.ring_lines_bytes = 65536;
  Question question = all_reduce(8192 / 4);
  question.what = Collective::kBroadcast;
  question.root = 3;
  for (const size_t bytes : {8192, 65536}) {
    question.count = bytes / 4;
    const Plan plan = choose(question, lines, Rules::any());
    EXPECT_EQ(plan.algorithm, Algorithm::kRing);
    EXPECT_EQ(plan.protocol, Protocol::kLL);
  }
  for (const size_t bytes : {8188, 65540}) {
    question.count = bytes / 4;
    EXPECT_NE(choose(question, lines, Rules::any()).algorithm, Algorithm::kRing);
  }
  question.count = 65536 / 4;
  Rules without = Rules::any();
  restrict_protocols("^LL", without);
  EXPECT_NE(choose(question, lines, without).algorithm, Algorithm::kRing);
}

TEST(ChooseRings, SumsToTheLastRankMayGoInARingBySimple) {
  Limits crossed = limits_without_ll128();
  crossed.reduce_ring.bytes = 8192;
  const Question question = reduce(8192 / 4, 7);
  EXPECT_NE(choose(question, crossed, Rules::any()).algorithm, Algorithm::kRing);
  crossed.reduce_ring.by_simple = true;
  const Plan plan = choose(question, crossed, Rules::any());
  EXPECT_EQ(plan.algorithm, Algorithm::kRing);
  EXPECT_EQ(plan.protocol, Protocol::kSimple);
  EXPECT_NE(choose(reduce(8188 / 4, 7), crossed, Rules::any()).algorithm, Algorithm::kRing);
  for (const int root : {0, 1}) {
    EXPECT_NE(choose(reduce(8192 / 4, root), crossed, Rules::any()).algorithm, Algorithm::kRing)
        << "it would come back";
  }
}

TEST(ChooseRings, ReducesInARingGoBySmallCtasSoonerIfTheSumNeedNotComeBack) {
  Limits crossed = limits();
  crossed.line = {100, 8192};
  crossed.reduce_ring = {1, 1 << 20};
  crossed.reduce_ring_back = {1, 1 << 22};
  const auto is_small = [&](size_t bytes, int root) {
    const Plan plan = choose(reduce(bytes / 4, root), crossed, Rules::any());
    EXPECT_EQ(plan.algorithm, Algorithm::kRing);
    return plan.small;
  };
  EXPECT_FALSE(is_small((1 << 20) - 4, 7));
  EXPECT_TRUE(is_small(1 << 20, 7));
  EXPECT_FALSE(is_small((1 << 22) - 4, 0));
  EXPECT_TRUE(is_small(1 << 22, 0));
}

/// A sum that comes back to rank 1 goes from there to rank 0 and on to rank 2, which takes from rank 1 otherwise.
TEST(ChooseRings, ByASumThatComesBackToRankOneRanksTakeFromSeveralOthers) {
  Limits crossed = limits();
  crossed.line = {100, 8192};
  crossed.mesh = {90, 4096};
  crossed.reduce_ring = crossed.reduce_ring_back = {1, 1};
  const auto channels = [&](int root) { return choose(reduce(1 << 20, root), crossed, Rules::any()).channels; };
  EXPECT_EQ(channels(0), 100);
  EXPECT_EQ(channels(1), 90);
  EXPECT_EQ(channels(7), 100);
}

TEST(ChooseRings, MaximaInARingHaveSmallCtas) {
  Limits offers = limits();
  offers.line = {100, 8192};
  offers.reduce_ring.small_bytes = 1;
  Rules rules = Rules::any();
  restrict_algorithms("reduce:ring", rules);
  Question question = all_reduce(1 << 20);
  question.what = Collective::kReduce;
  question.root = question.ranks - 1;
  EXPECT_TRUE(choose(question, offers, rules).small);
  question.sum = false;
  question.order_free = true;
  EXPECT_EQ(choose(question, offers, rules).algorithm, Algorithm::kRing);
  EXPECT_TRUE(choose(question, offers, rules).small);
}

}  // namespace
}  // namespace nitinol
