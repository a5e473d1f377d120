// Which algorithm, and which protocol.
#include "tuning/choose.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tuning/questions_testing.h"

namespace nitinol {
namespace {

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

TEST(Choose, SumsKeepTheCanonicalOrderUnlessTheUserNamesAnAlgorithm) {
  Rules rules = Rules::any();
  const uint32_t ring_and_tree = 1U << static_cast<int>(Algorithm::kRing) | 1U << static_cast<int>(Algorithm::kTree);
  rules.algorithms[static_cast<size_t>(Collective::kAllReduce)] = ring_and_tree;
  EXPECT_THROW(choose(all_reduce(1 << 20), limits(), rules), Error);
  EXPECT_EQ(choose(all_reduce(1 << 20, true), limits(), rules).algorithm, Algorithm::kRing);
  restrict_algorithms("ring", rules);
  EXPECT_EQ(choose(all_reduce(1 << 20), limits(), rules).algorithm, Algorithm::kRing);
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
