#include "tuning/choose.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace nitinol {
namespace {

Limits limits() {
  Limits p;
  p.slot_bytes = {4096, 8192, 65536};
  p.channels = 8;
  p.one_shot_bytes = 16384;
  p.ll_bytes = 1024;
  p.ll128_bytes.fill(32768);
  p.bytes_per_channel = 65536;
  return p;
}

Question all_reduce(size_t count, bool order_free = false) {
  return {
      .what = Collective::kAllReduce, .count = count, .type = DataType::kFloat32, .order_free = order_free, .ranks = 8};
}

TEST(Choose, SmallMessagesGoInOneShotLargeInTwo) {
  EXPECT_EQ(choose(all_reduce(4096), limits(), Rules::any()).algorithm, Algorithm::kOneShot);
  EXPECT_EQ(choose(all_reduce(4097), limits(), Rules::any()).algorithm, Algorithm::kTwoShot);
}

TEST(Choose, RulesOnProtocolsCountWhereThereAreSeveral) {
  Rules rules = Rules::any();
  restrict_protocols("LL", rules);
  Limits offered = limits();
  EXPECT_EQ(choose(all_reduce(1 << 20), offered, rules).protocol, Protocol::kLL);
  offered.slot_bytes = {0, 8192, 65536};
  EXPECT_THROW(choose(all_reduce(4), offered, rules), Error);
  offered.slot_bytes = {0, 0, 65536};
  EXPECT_EQ(choose(all_reduce(4), offered, rules).protocol, Protocol::kSimple);
}

TEST(Choose, BroadcastHasACrossoverOfItsOwn) {
  Question question = all_reduce(8192);
  question.what = Collective::kBroadcast;
  Limits crossed = limits();
  crossed.broadcast_one_shot_bytes = 4 * 8192;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kOneShot);
  question.count = 8193;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kTwoShot);
}

TEST(Choose, LargeBroadcastsMayGoInARing) {
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

TEST(Choose, BroadcastsGoInARingByLL128OrBySmallCtasOnly) {
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

Question reduce(size_t count, int root) {
  Question question = all_reduce(count);
  question.what = Collective::kReduce;
  question.root = root;
  return question;
}

TEST(Choose, LongSumsToOneOfTheFirstTwoRanksOrTheLastGoInARingByLL128) {
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

TEST(Choose, WhereOrderDoesNotMatterAllRootsHaveARingThatDoesNotComeBack) {
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

TEST(Choose, OnlyWhatMayBeBriefInTwoShotsGoesInARingLater) {
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

TEST(Choose, SumsGoInARingSoonerIfTheyNeedNotComeBack) {
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

TEST(Choose, BroadcastsGoInARingInLinesUpToTheirLimit) {
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

TEST(Choose, BlocksThatBeginWithWordsGoByLL128WhereOthersGoBySmallCtasOrInParts) {
  Limits offers = limits();
  offers.mesh = {90, 4096};
  offers.small_bytes.fill(1 << 20);
  offers.apart_moves = {20, 4096};
  offers.apart_bytes.fill(1 << 19);
  Question question = all_reduce((1 << 18) + 1);
  question.what = Collective::kReduceScatter;
  const auto by_ll128 = [&](const Question& asked, const Rules& rules = Rules::any()) {
    const Plan plan = choose(asked, offers, rules);
    return plan.protocol == Protocol::kLL128 && !plan.small && !plan.apart;
  };
  EXPECT_FALSE(by_ll128(question)) << "nothing says that they do";
  offers.words_ll128_bytes.fill(1 << 21);
  EXPECT_TRUE(by_ll128(question));
  for (const Collective what : {Collective::kAllGather, Collective::kAllToAll}) {
    Question moved = question;
    moved.what = what;
    EXPECT_TRUE(by_ll128(moved));
    moved.count = (1 << 17) + 1;
    EXPECT_TRUE(by_ll128(moved)) << "long enough for parts alone";
  }
  Question other = question;
  other.count += 3;
  EXPECT_FALSE(by_ll128(other)) << "whole vectors";
  other = question;
  other.type = DataType::kBfloat16;
  other.count = (1 << 19) + 1;
  EXPECT_TRUE(by_ll128(other)) << "sums of two-byte elements may begin within words";
  other.what = Collective::kAllGather;
  other.type = DataType::kUint8;
  other.count = (1 << 20) + 1;
  EXPECT_TRUE(by_ll128(other)) << "what only moves with any byte";
  other.what = Collective::kReduceScatter;
  EXPECT_FALSE(by_ll128(other)) << "other sums may not";
  other.type = DataType::kBfloat16;
  other.count = (1 << 19) + 2;
  EXPECT_TRUE(by_ll128(other));
  other.sum = false;
  EXPECT_FALSE(by_ll128(other)) << "no kernels";
  other = question;
  other.count = (1 << 19) + 1;
  EXPECT_FALSE(by_ll128(other)) << "too long";
  other = question;
  other.what = Collective::kAllReduce;
  EXPECT_FALSE(by_ll128(other)) << "no blocks";
  Rules without = Rules::any();
  restrict_protocols("^LL128", without);
  EXPECT_FALSE(by_ll128(question, without));
  EXPECT_TRUE(choose(question, offers, without).small);
}

TEST(Choose, SumsToTheLastRankMayGoInARingBySimple) {
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

TEST(Choose, ReducesInARingGoBySmallCtasSoonerIfTheSumNeedNotComeBack) {
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

TEST(Choose, LargeOperationsThatSuitThemGoBySmallCtas) {
  Limits offers = limits();
  offers.line = {100, 8192};
  offers.mesh = {90, 4096};
  offers.small_bytes.fill(1 << 20);
  Question question = all_reduce(1 << 18);
  const auto plan_of = [&](const Question& asked) { return choose(asked, offers, Rules::any()); };
  EXPECT_TRUE(plan_of(question).small);
  EXPECT_EQ(plan_of(question).algorithm, Algorithm::kTwoShot);
  EXPECT_EQ(plan_of(question).protocol, Protocol::kSimple);
  EXPECT_EQ(plan_of(question).channels, 90);
  EXPECT_EQ(plan_of(question).chunk, 1024U);
  --question.count;
  EXPECT_FALSE(plan_of(question).small);
  ++question.count;

  question.what = Collective::kBroadcast;
  EXPECT_FALSE(plan_of(question).small) << "two shots";
  offers.broadcast_ring_bytes = 1;
  EXPECT_TRUE(plan_of(question).small);
  EXPECT_EQ(plan_of(question).channels, 100);
  EXPECT_EQ(plan_of(question).chunk, 2048U);

  question.what = Collective::kReduce;
  EXPECT_EQ(plan_of(question).channels, 90) << "in two shots each rank takes from all others";
  question.ranks = 2;
  EXPECT_TRUE(plan_of(question).small);
  EXPECT_EQ(plan_of(question).algorithm, Algorithm::kOneShot);
  EXPECT_EQ(plan_of(question).channels, 100) << "the root takes from the other alone";

  question.what = Collective::kReduceScatter;
  EXPECT_EQ(plan_of(question).channels, 90);
  offers.one_shot_chunk_bytes = 1024;
  EXPECT_EQ(plan_of(question).chunk, 256U);
  question = all_reduce(1 << 18);
  EXPECT_EQ(plan_of(question).chunk, 1024U) << "that holds for one shot alone";
}

TEST(Choose, SmallCtasThatDoAllComeBeforePartsWhateverIsReduced) {
  Limits offers = limits();
  offers.mesh = {90, 4096};
  offers.apart_sums = {30, 4096};
  offers.small_bytes.fill(1 << 20);
  offers.apart_bytes.fill(1 << 20);
  Question question = all_reduce(1 << 18);
  question.what = Collective::kReduceScatter;
  Plan plan = choose(question, offers, Rules::any());
  EXPECT_TRUE(plan.small && !plan.apart);
  question.type = DataType::kInt32;
  plan = choose(question, offers, Rules::any());
  EXPECT_TRUE(plan.small && !plan.apart);
  question.sum = false;
  plan = choose(question, offers, Rules::any());
  EXPECT_TRUE(plan.small && !plan.apart);
}

/// A sum that comes back to rank 1 goes from there to rank 0 and on to rank 2, which takes from rank 1 otherwise.
TEST(Choose, ByASumThatComesBackToRankOneRanksTakeFromSeveralOthers) {
  Limits crossed = limits();
  crossed.line = {100, 8192};
  crossed.mesh = {90, 4096};
  crossed.reduce_ring = crossed.reduce_ring_back = {1, 1};
  const auto channels = [&](int root) { return choose(reduce(1 << 20, root), crossed, Rules::any()).channels; };
  EXPECT_EQ(channels(0), 100);
  EXPECT_EQ(channels(1), 90);
  EXPECT_EQ(channels(7), 100);
}

TEST(Choose, MaximaInARingHaveSmallCtas) {
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

TEST(Choose, MaximaDoNotGoInParts) {
  Limits offers = limits();
  offers.apart_sums = {30, 4096};
  offers.apart_bytes.fill(1 << 20);
  Question question = all_reduce(1 << 18);
  question.what = Collective::kReduceScatter;
  EXPECT_TRUE(choose(question, offers, Rules::any()).apart);
  question.sum = false;
  EXPECT_FALSE(choose(question, offers, Rules::any()).apart) << "no kernels";
}

TEST(Choose, JoinedPartsComeBeforeSmallCtasAndPartsWhereThereIsNoScalar) {
  Limits offers = limits();
  offers.small_bytes.fill(1 << 20);
  offers.apart_bytes.fill(1 << 20);
  offers.apart_sums = offers.apart_moves = {4, 32768};
  offers.mesh = {48, 16384};
  offers.joined = {24, 65536};
  offers.joined_bytes.fill(1 << 21);
  const auto joined = [&](Question question) { return choose(question, offers, Rules::any()).joined; };
  const Question least = all_reduce((1 << 21) / sizeof(float));
  const Plan plan = choose(least, offers, Rules::any());
  EXPECT_TRUE(plan.joined);
  EXPECT_FALSE(plan.small || plan.apart);
  EXPECT_EQ(plan.protocol, Protocol::kSimple);
  EXPECT_EQ(plan.channels, 24);
  EXPECT_LE(plan.chunk * sizeof(float), 65536U);
  Question other = least;
  --other.count;
  EXPECT_FALSE(joined(other));
  other = least;
  other.scaled = true;
  EXPECT_FALSE(joined(other)) << "movers do not multiply";
  EXPECT_TRUE(choose(other, offers, Rules::any()).small);
  other = least;
  other.sum = false;
  EXPECT_FALSE(joined(other)) << "no kernels";
  other = least;
  for (const DataType type : {DataType::kInt32, DataType::kFloat64}) {
    other.type = type;
    EXPECT_FALSE(joined(other)) << "no kernels";
  }
  other = least;
  other.what = Collective::kAllGather;
  EXPECT_FALSE(joined(other)) << "no kernels";
  other = least;
  other.what = Collective::kReduceScatter;
  EXPECT_TRUE(joined(other));
  ++other.count;
  EXPECT_FALSE(joined(other)) << "blocks between vectors";
  Rules few = Rules::any();
  few.max_channels = 23;
  EXPECT_FALSE(choose(least, offers, few).joined);
  Rules without_simple = Rules::any();
  without_simple.protocols.fill(1U << static_cast<int>(Protocol::kLL128));
  EXPECT_FALSE(choose(least, offers, without_simple).joined);
}

TEST(Choose, ChunksOfSmallCtasAreWholeStridesOfTheirWorkers) {
  Limits offers = limits();
  offers.mesh = {48, 1 << 17};
  offers.small_bytes.fill(1 << 20);
  offers.least_chunk_bytes = 1 << 15;
  Question question = all_reduce(1 << 23);  // of a block of 4 MB four rounds of 48 channels have 22 KB each
  EXPECT_EQ(choose(question, offers, Rules::any()).chunk * 4, size_t{1} << 15);
  question.count = 1 << 24;
  EXPECT_EQ(choose(question, offers, Rules::any()).chunk * 4, size_t{2} << 15);
}

TEST(Choose, SmallCtasAreForWhereTheUserAllowsSoManyAndSimple) {
  Limits offers = limits();
  offers.mesh = {90, 4096};
  offers.small_bytes.fill(1 << 20);
  Rules rules = Rules::any();
  EXPECT_TRUE(choose(all_reduce(1 << 18), offers, rules).small);
  rules.max_channels = 45;
  EXPECT_FALSE(choose(all_reduce(1 << 18), offers, rules).small);
  offers.mesh.per_cta = 2;
  EXPECT_TRUE(choose(all_reduce(1 << 18), offers, rules).small);
  rules.max_channels = 44;
  EXPECT_FALSE(choose(all_reduce(1 << 18), offers, rules).small);
  rules = Rules::any();
  restrict_protocols("LL128", rules);
  EXPECT_FALSE(choose(all_reduce(1 << 18), offers, rules).small);
}

TEST(Choose, OnlyLargeBlocksGetManyChannels) {
  Limits many = limits();
  many.one_shot_bytes = SIZE_MAX;
  many.bytes_per_channel = 1024;
  many.many_channels_bytes = 32768;
  many.few_channels = 3;
  EXPECT_EQ(choose(all_reduce(8191), many, Rules::any()).channels, 3);
  EXPECT_EQ(choose(all_reduce(8192), many, Rules::any()).channels, 8);
}

TEST(Choose, BlocksOfLongSumsInTwoShotsAreThoseOfARound) {
  Limits many = limits();
  many.bytes_per_channel = 1024;
  many.many_channels_bytes = 32768;
  many.few_channels = 3;
  many.one_shot_bytes = 0;
  many.ll128_bytes.fill(1 << 20);
  const auto all = static_cast<size_t>(all_reduce(1).ranks) * 8192;
  EXPECT_EQ(choose(all_reduce(all - 1), many, Rules::any()).channels, 3);
  EXPECT_EQ(choose(all_reduce(all), many, Rules::any()).channels, 8);
  Question other = all_reduce(all - 1);
  other.type = DataType::kInt32;
  EXPECT_EQ(choose(other, many, Rules::any()).channels, 8);
  Rules rules = Rules::any();
  restrict_protocols("Simple", rules);
  EXPECT_EQ(choose(all_reduce(all - 1), many, rules).channels, 8);
}

TEST(Choose, BlocksOfLongSumsInTwoShotsAreCutIntoWholeUnits) {
  Limits brief = limits();
  brief.channels = 96;
  brief.bytes_per_channel = 1024;
  brief.one_shot_bytes = 0;
  brief.ll128_bytes.fill(1 << 20);
  brief.grain_bytes = 128;
  const auto channels_of = [&](size_t block) {
    return choose(all_reduce(block / 4 * 8), brief, Rules::any()).channels;
  };
  constexpr size_t kUnit = 960;
  EXPECT_EQ(channels_of(96 * 4 * kUnit + 4096), 96);
  brief.two_brief_shots = {kUnit, 7680};
  EXPECT_EQ(channels_of(96 * (4 * kUnit - 128)), 96) << "four units each";
  EXPECT_EQ(channels_of(96 * 4 * kUnit + 4096), 80) << "five, one of them nearly empty with 96 channels";
  EXPECT_EQ(channels_of(96 * 7680), 96) << "no room for more";
  EXPECT_EQ(channels_of(96 * 7680 + 4096), 96) << "not brief";
}

TEST(Choose, LongSumsMayTakeASecondShotSoonerThanOthers) {
  Limits crossed = limits();
  crossed.sum_one_shot_bytes = crossed.one_shot_bytes / 2;
  Question question = all_reduce(crossed.one_shot_bytes / 8);
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kOneShot);
  question.count += 1;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kTwoShot);
  EXPECT_EQ(choose(question, limits(), Rules::any()).algorithm, Algorithm::kOneShot);
  question.sum = false;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kOneShot);
  question.sum = true;
  question.type = DataType::kInt32;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kOneShot);
  question.type = DataType::kFloat32;
  Rules rules = Rules::any();
  restrict_protocols("^LL128", rules);
  EXPECT_EQ(choose(question, crossed, rules).algorithm, Algorithm::kOneShot);
}

TEST(Choose, LongSumsForARootHaveACrossoverOfTheirOwn) {
  Limits crossed = limits();
  crossed.sum_one_shot_bytes = 0;
  crossed.sum_reduce_one_shot_bytes = crossed.reduce_one_shot_bytes / 2;
  Question question = all_reduce(crossed.sum_reduce_one_shot_bytes / 4);
  question.what = Collective::kReduce;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kOneShot);
  question.count += 1;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kTwoShot);
  question.sum = false;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kOneShot);
}

TEST(Choose, SimpleMayHaveFewerChannelsThanTheOthers) {
  Limits few = limits();
  few.bytes_per_channel = 1024;
  few.simple_channels = 5;
  EXPECT_EQ(choose(all_reduce(8192), few, Rules::any()).channels, 8);
  EXPECT_EQ(choose(all_reduce(1 << 24), few, Rules::any()).channels, 5);
  Rules rules = Rules::any();
  rules.min_channels = 7;
  EXPECT_EQ(choose(all_reduce(1 << 24), few, rules).channels, 5);
}

TEST(Choose, WithSimpleAChannelMayBeWorthMoreBytes) {
  Limits few = limits();
  few.bytes_per_channel = 1024;
  few.simple_bytes_per_channel = 1 << 20;
  const auto channels_of = [&](size_t count, Collective what) {
    Question question = all_reduce(count);
    question.what = what;
    return choose(question, few, Rules::any()).channels;
  };
  EXPECT_EQ(channels_of(1 << 20, Collective::kAllReduce), 4);
  EXPECT_EQ(channels_of((1 << 20) - 1, Collective::kAllReduce), 3);
  EXPECT_EQ(channels_of(8192, Collective::kAllReduce), 8) << "by LL128";
  EXPECT_EQ(channels_of(1 << 20, Collective::kReduce), 8) << "rooted";
}

TEST(Choose, WhatSuitsLinesGoesByLLFarther) {
  Limits lines = limits();
  lines.one_shot_bytes = 1 << 20;
  lines.lines_bytes.fill(4096);
  const auto protocol_of = [&](const Question& question) { return choose(question, lines, Rules::any()).protocol; };
  Question question = all_reduce(1024);
  EXPECT_EQ(protocol_of(question), Protocol::kLL);
  ++question.count;
  EXPECT_EQ(protocol_of(question), Protocol::kLL128);
  question = all_reduce(1024);
  question.sum = false;
  EXPECT_EQ(protocol_of(question), Protocol::kLL128) << "no kernels";
  question = all_reduce(1024);
  question.type = DataType::kInt32;
  EXPECT_EQ(protocol_of(question), Protocol::kLL128) << "no kernels";
  question.what = Collective::kAllGather;
  EXPECT_EQ(protocol_of(question), Protocol::kLL) << "only moves";
  lines.lines_bytes.fill(512);
  EXPECT_EQ(protocol_of(all_reduce(256)), Protocol::kLL) << "not less far than others";
}

TEST(Choose, RootedOperationsBySimpleMayHaveFewChannelsAndWholeSlots) {
  Limits few = limits();
  few.bytes_per_channel = 1024;
  few.least_chunk_bytes = 1024;
  few.rooted_channels = 3;
  Question question = all_reduce(1 << 18);
  question.what = Collective::kReduce;
  Plan plan = choose(question, few, Rules::any());
  EXPECT_EQ(plan.channels, 3);
  EXPECT_EQ(plan.chunk * sizeof(float), 65536U);
  few.rooted_channels = 0;
  plan = choose(question, few, Rules::any());
  EXPECT_EQ(plan.channels, 8);
  EXPECT_LT(plan.chunk * sizeof(float), 65536U);
  few.rooted_channels = 6;
  few.long_rooted_bytes = (size_t{1} << 20) + 1;
  EXPECT_EQ(choose(question, few, Rules::any()).channels, 6);
  ++question.count;
  plan = choose(question, few, Rules::any());
  EXPECT_EQ(plan.channels, 3);
  EXPECT_EQ(plan.chunk * sizeof(float), 65536U);
  question.what = Collective::kAllReduce;
  EXPECT_EQ(choose(question, few, Rules::any()).channels, 8);
}

TEST(Choose, ChunksThatArePassedOnAreWholeSlotsOrAsShortAsOthers) {
  Limits few = limits();
  few.bytes_per_channel = 1024;
  few.least_chunk_bytes = 1024;
  few.least_rounds = size_t{1} << 20;
  Question question = all_reduce(1 << 18);
  question.what = Collective::kBroadcast;
  EXPECT_EQ(choose(question, few, Rules::any()).chunk * sizeof(float), 65536U);
  few.passes_on_short_chunks = true;
  EXPECT_EQ(choose(question, few, Rules::any()).chunk * sizeof(float), 1024U);
  few.rooted_channels = 3;
  const Plan plan = choose(question, few, Rules::any());
  EXPECT_EQ(plan.channels, 3) << "which have whole slots";
  EXPECT_EQ(plan.chunk * sizeof(float), 65536U);
}

TEST(Choose, ReduceHasACrossoverOfItsOwn) {
  Question question = all_reduce(8192);
  question.what = Collective::kReduce;
  Limits crossed = limits();
  crossed.reduce_one_shot_bytes = 4 * 8192;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kOneShot);
  question.count = 8193;
  EXPECT_EQ(choose(question, crossed, Rules::any()).algorithm, Algorithm::kTwoShot);
}

TEST(Choose, ReduceMayStayWithLL128WhereOthersHaveLeftIt) {
  Question question = all_reduce(1 << 24);
  Limits crossed = limits();
  crossed.ll128_bytes[static_cast<size_t>(Collective::kReduce)] = 1 << 26;
  EXPECT_EQ(choose(question, crossed, Rules::any()).protocol, Protocol::kSimple);
  question.what = Collective::kReduce;
  EXPECT_EQ(choose(question, crossed, Rules::any()).protocol, Protocol::kLL128);
  EXPECT_EQ(choose(question, limits(), Rules::any()).protocol, Protocol::kSimple);
}

TEST(Choose, LongMessagesByLL128MayUseFewerCtas) {
  Question question = all_reduce(1 << 20);
  question.what = Collective::kAllGather;
  Limits crossed = limits();
  crossed.channels = 96;
  crossed.ll128_bytes.fill(8 << 20);
  EXPECT_EQ(choose(question, crossed, Rules::any()).channels, 64);
  crossed.compact_bytes[static_cast<size_t>(Collective::kAllGather)] = 4 << 20;
  EXPECT_EQ(choose(question, crossed, Rules::any()).channels, kCtasOfNccl);
  Rules rules = Rules::any();
  rules.min_channels = 48;
  EXPECT_EQ(choose(question, crossed, rules).channels, 48);
  question.count -= 1;
  EXPECT_EQ(choose(question, crossed, Rules::any()).channels, 63);
  question.type = DataType::kUint8;
  question.count = (4 << 20) + 1;
  EXPECT_EQ(choose(question, crossed, Rules::any()).channels, 64) << "blocks within words take more instructions";
  question = all_reduce(1 << 20);
  EXPECT_EQ(choose(question, crossed, Rules::any()).channels, 64) << "another collective";
}

TEST(Choose, AllReduceMayLeaveLL128WithItsSecondShot) {
  Question question = all_reduce(8 * 8192);
  Limits crossed = limits();
  crossed.one_shot_bytes = question.count * 4;
  crossed.ll128_bytes.fill(crossed.one_shot_bytes);
  crossed.two_shot_ll128_bytes = 0;
  EXPECT_EQ(choose(question, crossed, Rules::any()).protocol, Protocol::kLL128);
  question.count += 1;
  EXPECT_EQ(choose(question, crossed, Rules::any()).protocol, Protocol::kSimple);
  question.what = Collective::kAllGather;
  question.count = crossed.one_shot_bytes / 4;
  EXPECT_EQ(choose(question, crossed, Rules::any()).protocol, Protocol::kLL128);
}

TEST(Choose, BetweenTwoRanksBroadcastAndReduceGoInOneShot) {
  for (const Collective what : {Collective::kBroadcast, Collective::kReduce}) {
    Question question = all_reduce(1 << 24);
    question.what = what;
    EXPECT_EQ(choose(question, limits(), Rules::any()).algorithm, Algorithm::kTwoShot);
    question.ranks = 2;
    EXPECT_EQ(choose(question, limits(), Rules::any()).algorithm, Algorithm::kOneShot);
  }
}

TEST(Choose, ProtocolFollowsTheBytesOfOneMessage) {
  EXPECT_EQ(choose(all_reduce(256), limits(), Rules::any()).protocol, Protocol::kLL);
  EXPECT_EQ(choose(all_reduce(257), limits(), Rules::any()).protocol, Protocol::kLL128);
  EXPECT_EQ(choose(all_reduce(8 * 8192), limits(), Rules::any()).protocol, Protocol::kLL128);
  EXPECT_EQ(choose(all_reduce(8 * 8193), limits(), Rules::any()).protocol, Protocol::kSimple);
}

TEST(Choose, ReductionsOtherThanSumsHaveTheSameProtocols) {
  for (const size_t count : {256, 257, 8 * 8192, 8 * 8193}) {
    Question other = all_reduce(count);
    other.sum = false;
    EXPECT_EQ(choose(other, limits(), Rules::any()).protocol,
              choose(all_reduce(count), limits(), Rules::any()).protocol);
  }
}

TEST(Choose, AChunkIsASlotInElements) { EXPECT_EQ(choose(all_reduce(1 << 20), limits(), Rules::any()).chunk, 16384U); }

TEST(Choose, ChunksOfSimpleAreShorterWhereAChannelHasFewOfThem) {
  Limits few = limits();  // slots of 64 KB, 8 channels
  few.least_chunk_bytes = 16384;
  const auto chunk_bytes = [&](size_t count) { return choose(all_reduce(count), few, Rules::any()).chunk * 4; };
  EXPECT_EQ(chunk_bytes(size_t{64} << 20), 65536U);
  EXPECT_EQ(chunk_bytes(size_t{4} << 20), 65536U) << "four rounds: 16 MB by 8 ranks, 8 channels and 4";
  EXPECT_EQ(chunk_bytes(size_t{2} << 20), 32768U);
  EXPECT_EQ(chunk_bytes(size_t{1} << 17), 16384U);
  few.least_rounds = 2;
  EXPECT_EQ(chunk_bytes(size_t{2} << 20), 65536U);
  few.least_rounds = 4;
  Question broadcast = all_reduce(size_t{2} << 20);
  broadcast.what = Collective::kBroadcast;
  EXPECT_EQ(choose(broadcast, few, Rules::any()).chunk, 16384U) << "a slot, as its chunks are passed on";
  few.least_chunk_bytes = 0;
  EXPECT_EQ(chunk_bytes(size_t{2} << 20), 65536U);
}

TEST(Choose, ChannelsGrowWithTheMessageWithinTheUsersLimit) {
  EXPECT_EQ(choose(all_reduce(16), limits(), Rules::any()).channels, 1);
  EXPECT_EQ(choose(all_reduce(1 << 24), limits(), Rules::any()).channels, 8);
  Rules rules = Rules::any();
  rules.max_channels = 3;
  EXPECT_EQ(choose(all_reduce(1 << 24), limits(), rules).channels, 3);
  rules.max_channels = 0;
  rules.min_channels = 4;
  EXPECT_EQ(choose(all_reduce(16), limits(), rules).channels, 4);
  rules.min_channels = 32;
  EXPECT_EQ(choose(all_reduce(16), limits(), rules).channels, 8) << "there are no more";
}

TEST(Choose, SumsKeepTheCanonicalOrderUnlessTheUserNamesAnAlgorithm) {
  Rules rules = Rules::any();
  const uint32_t ring_and_tree = 1U << static_cast<int>(Algorithm::kRing) | 1U << static_cast<int>(Algorithm::kTree);
  rules.algorithms[static_cast<size_t>(Collective::kAllReduce)] = ring_and_tree;
  EXPECT_THROW(choose(all_reduce(1 << 20), limits(), rules), Error);
  EXPECT_EQ(choose(all_reduce(1 << 20, true), limits(), rules).algorithm, Algorithm::kRing);
  restrict_algorithms("ring", rules);
  EXPECT_EQ(choose(all_reduce(1 << 20), limits(), rules).algorithm, Algorithm::kRing);
}

Limits limits_with_parts() {
  Limits p = limits();
  p.apart_sums = {16, 32768};
  p.apart_moves = {12, 65536};
  p.apart_bytes[static_cast<size_t>(Collective::kAllReduce)] = size_t{1} << 24;
  p.apart_bytes[static_cast<size_t>(Collective::kAllGather)] = size_t{1} << 22;
  return p;
}

TEST(Choose, LargeSumsAndCopiesRunInPartsWhereThatIsOffered) {
  const Plan sum = choose(all_reduce(1 << 22), limits_with_parts(), Rules::any());
  EXPECT_TRUE(sum.apart);
  EXPECT_EQ(sum.protocol, Protocol::kSimple);
  EXPECT_EQ(sum.channels, 16);
  EXPECT_EQ(sum.chunk * 4, 32768U);
  EXPECT_FALSE(choose(all_reduce((1 << 22) - 1), limits_with_parts(), Rules::any()).apart);
  EXPECT_FALSE(choose(all_reduce(1 << 22), limits(), Rules::any()).apart);
  Question gather = all_reduce(1 << 20);
  gather.what = Collective::kAllGather;
  EXPECT_EQ(choose(gather, limits_with_parts(), Rules::any()).channels, 12);
  Question reduce = all_reduce(1 << 24);
  reduce.what = Collective::kReduce;
  Limits with_reduce = limits_with_parts();
  with_reduce.apart_bytes[static_cast<size_t>(Collective::kReduce)] = 1;
  EXPECT_FALSE(choose(reduce, with_reduce, Rules::any()).apart) << "has no kernels";
}

TEST(Choose, LongReducesInTwoShotsHaveFewerChannelsByLL128) {
  Limits fewer = limits();
  fewer.channels = 16;
  fewer.ll128_bytes.fill(SIZE_MAX);
  fewer.long_reduce_bytes = 1 << 24;
  fewer.long_reduce_channels = 10;
  const auto channels = [&](const Question& question) { return choose(question, fewer, Rules::any()).channels; };
  EXPECT_EQ(channels(reduce(1 << 22, 3)), 10);
  EXPECT_EQ(channels(reduce((1 << 22) - 1, 3)), 16);
  EXPECT_EQ(channels(all_reduce(1 << 22)), 16);
  fewer.reduce_ring.bytes = 1;
  EXPECT_EQ(channels(reduce(1 << 22, 7)), 16) << "in a ring";
  fewer.ll128_bytes.fill(0);
  EXPECT_EQ(channels(reduce(1 << 22, 3)), 16) << "by Simple";
}

TEST(Choose, WhatIsNoSumOrLimitedByTheUserDoesNotRunInParts) {
  Question other = all_reduce(1 << 22, true);
  other.sum = false;
  EXPECT_FALSE(choose(other, limits_with_parts(), Rules::any()).apart);
  Rules few = Rules::any();
  few.max_channels = 4;
  EXPECT_FALSE(choose(all_reduce(1 << 22), limits_with_parts(), few).apart);
  Rules lines = Rules::any();
  restrict_protocols("LL128", lines);
  EXPECT_FALSE(choose(all_reduce(1 << 22), limits_with_parts(), lines).apart);
  Rules ring = Rules::any();
  restrict_algorithms("ring", ring);
  EXPECT_FALSE(choose(all_reduce(1 << 22), limits_with_parts(), ring).apart);
}

TEST(Choose, NothingAllowedIsAnErrorAndNotAFallback) {
  Rules rules = Rules::any();
  restrict_algorithms("nvls", rules);
  EXPECT_THROW(choose(all_reduce(16), limits(), rules), Error);
  rules = Rules::any();
  restrict_protocols("LL", rules);
  Limits without_ll = limits();
  without_ll.slot_bytes[0] = 0;
  EXPECT_THROW(choose(all_reduce(16), without_ll, rules), Error);
}

}  // namespace
}  // namespace nitinol
