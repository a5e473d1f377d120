#include "executor/cuda/crossovers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "algorithm/parts.h"
#include "executor/cuda/machine_testing.h"

namespace nitinol::cuda {
namespace {

TEST(Crossovers, RulesForLargeMessagesHoldWhereTheyWereMeasured) {
  EXPECT_LT(sizes_for(machine(4)).limits.least_chunk_bytes, sizes_for(machine(4)).limits.slot_bytes[2]);
  EXPECT_EQ(sizes_for(machine(4)).limits.broadcast_ring_bytes, (size_t{128} << 10) + 1) << "where LL128 begins";
  EXPECT_EQ(sizes_for(machine(8)).limits.broadcast_ring_bytes, size_t{256} << 20);
  EXPECT_EQ(sizes_for(machine(2)).limits.broadcast_ring_bytes, (size_t{16} << 20) + 1) << "one shot is the same";
  const auto small_from = [](int ranks, Collective what) {
    return sizes_for(machine(ranks)).limits.small_bytes[static_cast<size_t>(what)];
  };
  EXPECT_GT(small_from(4, Collective::kAllReduce), 0U);
  EXPECT_EQ(small_from(8, Collective::kAllReduce), 0U);
  EXPECT_EQ(small_from(2, Collective::kAllReduce), (size_t{16} << 20) + 1) << "where LL128 ends";
  EXPECT_EQ(small_from(4, Collective::kReduce), size_t{128} << 20) << "in two shots";
  for (const Collective what : {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll,
                                Collective::kGather, Collective::kScatter}) {
    for (const int ranks : {2, 3, 4}) EXPECT_GT(small_from(ranks, what), 0U);
    EXPECT_EQ(small_from(8, what), 0U) << "not measured";
  }
  Machine host = machine(4);
  host.in_host_memory = true;
  EXPECT_EQ(sizes_for(host).limits.least_chunk_bytes, size_t{16} << 10);
}

TEST(Crossovers, LongReducesInTwoShotsHaveFewerChannelsWhereThatWasMeasured) {
  const auto limits = [](int ranks) { return sizes_for(machine(ranks)).limits; };
  for (const int ranks : {3, 4}) {
    EXPECT_GT(limits(ranks).long_reduce_channels, 0);
    EXPECT_LT(limits(ranks).long_reduce_channels, limits(ranks).channels);
  }
  for (const int ranks : {2, 8}) EXPECT_EQ(limits(ranks).long_reduce_bytes, SIZE_MAX);
}

TEST(Crossovers, APairWithFewCtasStaysLongerWithOneShot) {
  const auto most_of_one_shot = [](int ranks, int max_channels) {
    Machine few = machine(ranks);
    few.max_channels = max_channels;
    return sizes_for(few).limits.one_shot_bytes;
  };
  EXPECT_EQ(most_of_one_shot(2, 0), size_t{8} << 20);
  EXPECT_EQ(most_of_one_shot(2, 33), size_t{8} << 20);
  EXPECT_EQ(most_of_one_shot(2, 24), size_t{12} << 20);
  EXPECT_EQ(most_of_one_shot(2, 32), size_t{16} << 20);
  EXPECT_EQ(most_of_one_shot(4, 32), size_t{512} << 10);
}

TEST(Crossovers, SumsOfMoreThanTwoRanksTakeASecondShotSoonerWhereTwoShotsAreBrief) {
  const Sizes sizes = sizes_for(machine(4));
  EXPECT_EQ(sizes.limits.sum_one_shot_bytes, size_t{192} << 10);
  EXPECT_EQ(sizes.limits.sum_reduce_one_shot_bytes, size_t{768} << 10);
  const auto most = sizes.brief_bytes[static_cast<size_t>(Queue::kBriefLL128)];
  const QueueLayout& layout = sizes.layouts[static_cast<size_t>(Queue::kBriefLL128)];
  EXPECT_GE(most * static_cast<size_t>(layout.channels), (size_t{2} << 20) / 4) << "2 MB are brief";
  EXPECT_LE(sizes.limits.many_channels_bytes, most * static_cast<size_t>(sizes.limits.few_channels))
      << "what has few channels is brief";
  EXPECT_EQ(sizes_for(machine(2)).limits.sum_one_shot_bytes, SIZE_MAX);
  EXPECT_EQ(sizes_for(machine(2)).limits.sum_reduce_one_shot_bytes, SIZE_MAX);
  Machine few = machine(4);
  few.max_channels = 4;
  EXPECT_EQ(sizes_for(few).limits.sum_one_shot_bytes, SIZE_MAX) << "too few for two shots to be brief";
  EXPECT_EQ(sizes_for(few).limits.sum_reduce_one_shot_bytes, SIZE_MAX);
  Machine cut = machine(4);
  cut.lines_stay_whole = false;
  EXPECT_EQ(sizes_for(cut).limits.sum_one_shot_bytes, SIZE_MAX);
}

TEST(Crossovers, WithFewCtasWhatIsTooLongForLL128HasTwoChannelsInEach) {
  for (const int ranks : {2, 3, 4}) {
    for (const int ctas : {24, 32}) {
      Machine few = machine(ranks);
      few.max_channels = ctas;
      const Limits limits = sizes_for(few).limits;
      const auto by_small = [&](Collective what) { return limits.small_bytes[static_cast<size_t>(what)]; };
      const auto by_ll128 = [&](Collective what) { return limits.ll128_bytes[static_cast<size_t>(what)]; };
      for (const Collective what : {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll}) {
        EXPECT_GT(by_small(what), 0U);
        EXPECT_LE(by_small(what), by_ll128(what) + 1) << "there must be no gap in which it goes by Simple";
      }
      const size_t in_one_shot = std::min(limits.one_shot_bytes, limits.sum_one_shot_bytes);
      EXPECT_GT(by_small(Collective::kAllReduce), in_one_shot);
      if (ranks == 2) {
        EXPECT_EQ(by_small(Collective::kAllReduce), limits.one_shot_bytes + 1) << "of whatever type";
      }
      EXPECT_GT(by_small(Collective::kReduce), 0U);
      EXPECT_LE(limits.broadcast_ring_bytes, by_small(Collective::kBroadcast));
    }
  }
}

size_t most_of_ll128(int ranks, Collective what, int max_channels) {
  Machine few = machine(ranks);
  few.max_channels = max_channels;
  return sizes_for(few).limits.ll128_bytes[static_cast<size_t>(what)];
}

TEST(Crossovers, WithFewCtasThreeOrFourRanksStayLongerWithLL128ButForLongReduces) {
  for (const int ranks : {8, 72}) {
    EXPECT_EQ(most_of_ll128(ranks, Collective::kAllGather, 24), most_of_ll128(ranks, Collective::kAllGather, 0))
        << "not measured";
  }
  for (const Collective what : {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll}) {
    EXPECT_EQ(most_of_ll128(4, what, 24), size_t{64} << 20);
    EXPECT_EQ(most_of_ll128(4, what, 32), size_t{64} << 20);
    EXPECT_EQ(most_of_ll128(4, what, 0), size_t{what == Collective::kReduceScatter ? 12U : 8U} << 20);
  }
  EXPECT_LT(most_of_ll128(4, Collective::kReduce, 24), most_of_ll128(4, Collective::kReduce, 32));
  EXPECT_LT(most_of_ll128(4, Collective::kReduce, 32), most_of_ll128(4, Collective::kReduce, 33));
}

TEST(Crossovers, LongReducesGoInARingWhereThatWasMeasured) {
  const auto ring = [](const Machine& m) { return sizes_for(m).limits.reduce_ring; };
  for (const int ranks : {3, 4}) {
    Machine few = machine(ranks);
    for (const int ctas : {0, 4, 24, 32}) {
      few.max_channels = ctas;
      const Sizes sizes = sizes_for(few);
      const size_t brief =
          sizes.limits.two_brief_shots.block_bytes * static_cast<size_t>(sizes.limits.channels * ranks);
      const Limits::ReduceRing& back = sizes.limits.reduce_ring_back;
      EXPECT_GT(back.brief_bytes, brief) << "two brief shots are faster";
      EXPECT_LE(back.brief_bytes, size_t{6} << 20);
      EXPECT_LE(sizes.limits.reduce_ring.bytes, back.bytes);
      EXPECT_LE(sizes.limits.reduce_ring.brief_bytes, size_t{3} << 20) << "to the last rank a ring is faster sooner";
      EXPECT_EQ(sizes.limits.reduce_ring.small_bytes < SIZE_MAX, ranks == 4) << "was measured";
      EXPECT_EQ(back.small_bytes < SIZE_MAX, ranks == 4 && ctas != 32) << "was measured";
    }
    Machine cut = machine(ranks);
    cut.lines_stay_whole = false;
    EXPECT_EQ(ring(cut).bytes, SIZE_MAX);
  }
  for (const int ranks : {2, 5, 8}) EXPECT_EQ(ring(machine(ranks)).bytes, SIZE_MAX);
  EXPECT_GT(sizes_for(machine(4)).limits.reduce_ring_back.small_bytes, ring(machine(4)).small_bytes);
}

TEST(Crossovers, LongBlocksOfWordsGoByLL128WhereThatWasMeasured) {
  const auto most = [](const Machine& m, Collective what) {
    return sizes_for(m).limits.words_ll128_bytes[static_cast<size_t>(what)];
  };
  for (const int ranks : {2, 3, 4}) EXPECT_EQ(most(machine(ranks), Collective::kReduceScatter), SIZE_MAX);
  EXPECT_LT(most(machine(2), Collective::kAllGather), most(machine(4), Collective::kAllGather));
  EXPECT_EQ(most(machine(8), Collective::kReduceScatter), 0U);
  Machine other = machine(4);
  other.max_channels = 24;
  EXPECT_EQ(most(other, Collective::kReduceScatter), 0U);
  other = machine(4);
  other.lines_stay_whole = false;
  EXPECT_EQ(most(other, Collective::kReduceScatter), 0U);
}

TEST(Crossovers, ThroughHostMemoryThreeOrFourRanksHaveRingsWhereThatWasMeasured) {
  for (const int ranks : {2, 3, 4, 8}) {
    Machine host = machine(ranks);
    host.in_host_memory = true;
    const Limits limits = sizes_for(host).limits;
    const bool measured = ranks == 3 || ranks == 4;
    EXPECT_EQ(limits.broadcast_ring_bytes < limits.ring_lines_bytes, measured);
    EXPECT_EQ(limits.reduce_ring.bytes < SIZE_MAX && limits.reduce_ring.by_simple, measured);
    EXPECT_EQ(limits.reduce_ring_back.bytes, SIZE_MAX) << "the sum would have to come back";
    EXPECT_EQ(limits.passes_on_short_chunks, ranks > 2);
    EXPECT_EQ(limits.rooted_channels > 0, ranks == 2);
  }
  EXPECT_EQ(sizes_for(machine(4)).limits.ring_lines_bytes, 0U);
}

TEST(Crossovers, APairWithFewerCtasThanNcclsReducesBySimpleSooner) {
  for (const Collective what : {Collective::kReduce, Collective::kReduceScatter}) {
    EXPECT_EQ(most_of_ll128(2, what, 32), size_t{16} << 20);
    EXPECT_EQ(most_of_ll128(2, what, 24), size_t{8} << 20);
  }
  EXPECT_EQ(most_of_ll128(2, Collective::kAllReduce, 24), size_t{16} << 20);
}

TEST(Crossovers, APairWithClustersUsesFewCtasForLongMessages) {
  constexpr auto kAllGather = static_cast<size_t>(Collective::kAllGather);
  Machine pair = machine(2);
  EXPECT_EQ(sizes_for(pair).limits.compact_bytes[kAllGather], 0U);
  pair.has_clusters = true;
  const Limits limits = sizes_for(pair).limits;
  EXPECT_GT(limits.compact_bytes[kAllGather], 0U);
  EXPECT_LT(limits.compact_bytes[kAllGather], limits.ll128_bytes[kAllGather]);
  EXPECT_GT(limits.small_bytes[kAllGather], limits.compact_bytes[kAllGather]) << "small CTAs would come first";
  constexpr auto kAllToAll = static_cast<size_t>(Collective::kAllToAll);
  pair.max_channels = 32;
  EXPECT_EQ(sizes_for(pair).limits.ll128_bytes[kAllToAll], size_t{32} << 20);
  pair.max_channels = 24;
  EXPECT_EQ(sizes_for(pair).limits.ll128_bytes[kAllToAll], size_t{16} << 20);
  pair.max_channels = 48;
  EXPECT_EQ(sizes_for(pair).limits.compact_bytes[kAllGather], 0U) << "not measured";
  Machine four = machine(4);
  four.has_clusters = true;
  EXPECT_EQ(sizes_for(four).limits.compact_bytes[kAllGather], 0U) << "not measured";
}

CollectiveWork all_reduce_of(size_t bytes, Algorithm algorithm = Algorithm::kOneShot) {
  CollectiveWork work;
  work.type = DataType::kFloat32;
  work.count = bytes / sizeof(float);
  work.plan.algorithm = algorithm;
  return work;
}

TEST(Crossovers, WhereLongLinesMayBeCutLongMessagesGoInShortOnes) {
  constexpr int kRanks = 4;
  constexpr size_t kLong = size_t{1} << 20;
  Machine cut = machine(kRanks);
  EXPECT_EQ(queue_of_ll(sizes_for(cut), all_reduce_of(kLong), kRanks), Queue::kLL);
  cut.lines_stay_whole = false;
  const Sizes sizes = sizes_for(cut);
  EXPECT_EQ(sizes.limits.slot_bytes[static_cast<size_t>(Protocol::kLL128)], 0U);
  const auto queue_of = [&](const CollectiveWork& work) { return queue_of_ll(sizes, work, kRanks); };
  EXPECT_EQ(queue_of(all_reduce_of(kLong)), Queue::kLL16);
  EXPECT_EQ(queue_of(all_reduce_of(sizes.without_lines_bytes)), Queue::kLL);
  EXPECT_EQ(queue_of(all_reduce_of(sizes.without_lines_bytes + sizeof(float))), Queue::kLL16);
  EXPECT_EQ(queue_of(all_reduce_of(kRanks * sizes.without_lines_bytes, Algorithm::kTwoShot)), Queue::kLL)
      << "a peer gets a part of it";
  CollectiveWork odd = all_reduce_of(kLong);
  odd.type = DataType::kInt32;
  EXPECT_EQ(queue_of(odd), Queue::kLL) << "no kernels";
  odd = all_reduce_of(kLong);
  odd.reduction.combine = Combine::kMax;
  EXPECT_EQ(queue_of(odd), Queue::kLL) << "no kernels";
}

TEST(Crossovers, MessagesGoByLL128WhereLinesStayWholeAndElseByLLOrSimple) {
  const Sizes whole = sizes_for(machine(4));
  EXPECT_EQ(message_protocol(whole, 1), Protocol::kLL128);
  EXPECT_EQ(message_protocol(whole, size_t{16} << 20), Protocol::kLL128);
  EXPECT_EQ(message_protocol(whole, (size_t{16} << 20) + 1), Protocol::kSimple);
  Machine cut = machine(4);
  cut.lines_stay_whole = false;
  EXPECT_EQ(message_protocol(sizes_for(cut), 64 << 10), Protocol::kLL);
  EXPECT_EQ(message_protocol(sizes_for(cut), (64 << 10) + 1), Protocol::kSimple);
  cut.in_host_memory = true;
  EXPECT_EQ(message_protocol(sizes_for(cut), 256 << 10), Protocol::kLL);
  EXPECT_EQ(message_protocol(sizes_for(cut), (256 << 10) + 1), Protocol::kSimple);
}

TEST(Crossovers, ThroughHostMemoryLLServesFartherTheFewerRanksShareTheBus) {
  Machine host = machine(2);
  host.in_host_memory = true;
  host.lines_stay_whole = false;
  const auto lines_of = [](const Limits& limits, Collective what) {
    return limits.lines_bytes[static_cast<size_t>(what)];
  };
  EXPECT_EQ(lines_of(sizes_for(host).limits, Collective::kBroadcast), size_t{512} << 10) << "one way";
  size_t last = lines_of(sizes_for(host).limits, Collective::kAllGather);
  EXPECT_EQ(last, size_t{1} << 20);
  for (host.ranks = 3; host.ranks <= kMaxRanks; ++host.ranks) {
    const Limits limits = sizes_for(host).limits;
    for (const size_t bytes : limits.lines_bytes) {
      EXPECT_LE(bytes, last);
      EXPECT_LE(limits.ll_bytes, bytes);
    }
    EXPECT_LE(limits.one_shot_bytes, limits.reduce_one_shot_bytes);
    last = lines_of(limits, Collective::kAllGather);
  }
  EXPECT_EQ(last, size_t{16} << 10);
}

}  // namespace
}  // namespace nitinol::cuda
