// By which CTAs: small ones, parts, joined parts; how many channels, and how long their chunks and blocks are.
#include <gtest/gtest.h>

#include "tuning/choose.h"
#include "tuning/questions_testing.h"

namespace nitinol {
namespace {

TEST(ChooseCtas, LargeOperationsThatSuitThemGoBySmallCtas) {
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

TEST(ChooseCtas, SmallCtasThatDoAllComeBeforePartsWhateverIsReduced) {
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

TEST(ChooseCtas, MaximaDoNotGoInParts) {
  Limits offers = limits();
  offers.apart_sums = {30, 4096};
  offers.apart_bytes.fill(1 << 20);
  Question question = all_reduce(1 << 18);
  question.what = Collective::kReduceScatter;
  EXPECT_TRUE(choose(question, offers, Rules::any()).apart);
  question.sum = false;
  EXPECT_FALSE(choose(question, offers, Rules::any()).apart) << "no kernels";
}

TEST(ChooseCtas, JoinedPartsComeBeforeSmallCtasAndPartsWhereThereIsNoScalar) {
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

TEST(ChooseCtas, ChunksOfSmallCtasAreWholeStridesOfTheirWorkers) {
  Limits offers = limits();
  offers.mesh = {48, 1 << 17};
  offers.small_bytes.fill(1 << 20);
  offers.least_chunk_bytes = 1 << 15;
  Question question = all_reduce(1 << 23);  // of a block of 4 MB four rounds of 48 channels have 22 KB each
  EXPECT_EQ(choose(question, offers, Rules::any()).chunk * 4, size_t{1} << 15);
  question.count = 1 << 24;
  EXPECT_EQ(choose(question, offers, Rules::any()).chunk * 4, size_t{2} << 15);
}

TEST(ChooseCtas, SmallCtasAreForWhereTheUserAllowsSoManyAndSimple) {
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

TEST(ChooseCtas, OnlyLargeBlocksGetManyChannels) {
  Limits many = limits();
  many.one_shot_bytes = SIZE_MAX;
  many.bytes_per_channel = 1024;
  many.many_channels_bytes = 32768;
  many.few_channels = 3;
  EXPECT_EQ(choose(all_reduce(8191), many, Rules::any()).channels, 3);
  EXPECT_EQ(choose(all_reduce(8192), many, Rules::any()).channels, 8);
}

TEST(ChooseCtas, BlocksOfLongSumsInTwoShotsAreThoseOfARound) {
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

TEST(ChooseCtas, BlocksOfLongSumsInTwoShotsAreCutIntoWholeUnits) {
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

TEST(ChooseCtas, SimpleMayHaveFewerChannelsThanTheOthers) {
  Limits few = limits();
  few.bytes_per_channel = 1024;
  few.simple_channels = 5;
  EXPECT_EQ(choose(all_reduce(8192), few, Rules::any()).channels, 8);
  EXPECT_EQ(choose(all_reduce(1 << 24), few, Rules::any()).channels, 5);
  Rules rules = Rules::any();
  rules.min_channels = 7;
  EXPECT_EQ(choose(all_reduce(1 << 24), few, rules).channels, 5);
}

TEST(ChooseCtas, WithSimpleAChannelMayBeWorthMoreBytes) {
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

TEST(ChooseCtas, RootedOperationsBySimpleMayHaveFewChannelsAndWholeSlots) {
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

TEST(ChooseCtas, ChunksThatArePassedOnAreWholeSlotsOrAsShortAsOthers) {
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

TEST(ChooseCtas, LongMessagesByLL128MayUseFewerCtas) {
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

TEST(ChooseCtas, AChunkIsASlotInElements) {
  EXPECT_EQ(choose(all_reduce(1 << 20), limits(), Rules::any()).chunk, 16384U);
}

TEST(ChooseCtas, ChunksOfSimpleAreShorterWhereAChannelHasFewOfThem) {
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

TEST(ChooseCtas, ChannelsGrowWithTheMessageWithinTheUsersLimit) {
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

Limits limits_with_parts() {
  Limits p = limits();
  p.apart_sums = {16, 32768};
  p.apart_moves = {12, 65536};
  p.apart_bytes[static_cast<size_t>(Collective::kAllReduce)] = size_t{1} << 24;
  p.apart_bytes[static_cast<size_t>(Collective::kAllGather)] = size_t{1} << 22;
  return p;
}

TEST(ChooseCtas, LargeSumsAndCopiesRunInPartsWhereThatIsOffered) {
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

TEST(ChooseCtas, LongReducesInTwoShotsHaveFewerChannelsByLL128) {
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

TEST(ChooseCtas, WhatIsNoSumOrLimitedByTheUserDoesNotRunInParts) {
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

}  // namespace
}  // namespace nitinol
