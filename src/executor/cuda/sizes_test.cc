#include "executor/cuda/sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "algorithm/parts.h"
#include "executor/cuda/kernel_shapes.h"
#include "executor/cuda/machine_testing.h"

namespace nitinol::cuda {
namespace {

constexpr size_t kSharedBytesOfHopper = size_t{227} << 10;

TEST(Sizes, SmallMessagesNeedLessThan64MegabytesWhateverTheNumberOfRanks) {
  for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
    const Sizes sizes = sizes_for(machine(ranks));
    size_t small = 0;
    for (const Queue queue :
         {Queue::kLL, Queue::kLL128, Queue::kMessageLL, Queue::kMessageLL128, Queue::kBriefLL, Queue::kBriefLL128}) {
      small += sizes.layouts[static_cast<size_t>(queue)].bytes();
    }
    EXPECT_LT(small, size_t{64} << 20) << ranks << " ranks";
    const size_t lines = sizes.layouts[static_cast<size_t>(Queue::kLL16)].bytes();
    EXPECT_LT(lines, size_t{17} << 20) << ranks << " ranks, where long lines may be cut";
  }
}

TEST(Sizes, SlotsHoldWholeUnitsOfTheirWires) {
  for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
    const Sizes sizes = sizes_for(machine(ranks));
    for (int index = 0; index < kQueues; ++index) {
      const QueueLayout& layout = sizes.layouts[static_cast<size_t>(index)];
      EXPECT_EQ(layout.slot_bytes % shape_of(static_cast<Queue>(index)).stored, 0U) << ranks << " ranks, " << index;
    }
  }
}

TEST(Sizes, EveryConnectionHasTheSlotsThatAlgorithmsNeed) {
  for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
    for (const QueueLayout& layout : sizes_for(machine(ranks)).layouts) {
      // Consumed slots are given back once half of them are.
      EXPECT_GE(static_cast<int>(layout.slots - (layout.slots + 1) / 2 + 1), algorithm::kLeastSlots);
      EXPECT_EQ(layout.slots & (layout.slots - 1), 0U);
      EXPECT_EQ(layout.slot_bytes % 1024, 0U);
    }
  }
}

TEST(Sizes, KernelsOfAllRanksOnAGpuAreResidentAtOnce) {
  for (int sharing = 1; sharing <= 16; sharing *= 2) {
    const Sizes sizes = sizes_for(machine(sharing, sharing));
    EXPECT_LE(sizes.limits.channels * sharing, 132);
  }
}

/// The last may have a kernel of large CTAs to run yet, for which the others wait, one of theirs on each
/// multiprocessor.
TEST(Sizes, KernelsOfAllRanksOnAGpuButOneLeaveAMultiprocessorToThatOne) {
  for (int sharing = 2; sharing <= 9; ++sharing) {
    for (const int multiprocessors : {78, 132}) {
      if (sharing > 6 && multiprocessors == 78) continue;  // a lane for each connection takes more
      const Sizes sizes = sizes_for(machine(sharing, sharing, multiprocessors));
      const Limits& l = sizes.limits;
      const int lanes = 2 * (sharing - 1);
      for (const int ctas :
           {l.channels, l.line.channels, l.mesh.channels / l.mesh.per_cta,
            l.apart_sums.channels * algorithm::parts_of(algorithm::Division::kByRole, sharing),
            l.apart_moves.channels * algorithm::parts_of(algorithm::Division::kByPeer, sharing), sizes.lanes_at_once,
            lanes * sizes.layouts[static_cast<size_t>(Queue::kMessageLL128)].channels,
            lanes * sizes.layouts[static_cast<size_t>(Queue::kMessageSimple)].channels}) {
        EXPECT_LT((sharing - 1) * ctas, multiprocessors) << sharing << " ranks, " << ctas << " CTAs";
      }
    }
  }
}

TEST(Sizes, LaunchesThatOverlapHaveNoMoreCtasThanTheLargestAndNoneDoOnGpusThatRanksShare) {
  EXPECT_EQ(sizes_for(machine(2)).ctas_ahead, 32);
  EXPECT_EQ(sizes_for(machine(8)).ctas_ahead, 16);
  Machine host = machine(2);
  host.in_host_memory = true;
  EXPECT_EQ(sizes_for(host).ctas_ahead, 16) << "though fewer go by Simple";
  EXPECT_EQ(sizes_for(machine(4, 2)).ctas_ahead, 0);
  EXPECT_TRUE(sizes_for(machine(4, 2)).ranks_share_gpus);
  EXPECT_FALSE(sizes_for(machine(4)).ranks_share_gpus);
  Machine limited = machine(8);
  limited.max_channels = 1;
  EXPECT_EQ(sizes_for(limited).ctas_ahead, 0);
}

TEST(Sizes, ConfiguredLimitsAreObeyed) {
  Machine limited = machine(8);
  limited.max_channels = 3;
  for (const QueueLayout& layout : sizes_for(limited).layouts) EXPECT_LE(layout.channels, 3);
  EXPECT_EQ(sizes_for(limited).limits.channels, 3);
}

TEST(Sizes, WhereCtasAreFewAndRanksUpToFourTwoChannelsShareACta) {
  Machine limited = machine(4);
  limited.max_channels = 3;
  const Sizes sizes = sizes_for(limited);
  for (int index = 0; index < kQueues; ++index) {
    const auto queue = static_cast<Queue>(index);
    const bool small = queue == Queue::kMesh || queue == Queue::kLine;
    EXPECT_LE(sizes.layouts[static_cast<size_t>(index)].channels, small ? 3 * kMostRows : 3);
  }
  for (const Limits::Small& offered : {sizes.limits.mesh, sizes.limits.line}) {
    EXPECT_EQ(offered.channels, 3 * kMostRows);
    EXPECT_EQ(offered.per_cta, kMostRows);
  }
  EXPECT_EQ(sizes_for(machine(4)).limits.mesh.per_cta, 1);
  EXPECT_EQ(sizes_for(machine(4)).limits.line.per_cta, 1);
  limited.in_host_memory = true;
  EXPECT_EQ(sizes_for(limited).limits.line.channels, 3);
  EXPECT_EQ(sizes_for(limited).limits.mesh.channels, 0);
}

TEST(Sizes, NothingGoesBySmallCtasWhereCtasAreLimitedButNotFewOrRanksAreMany) {
  for (const auto& [ranks, most] : {std::pair(2, 33), std::pair(4, 64), std::pair(5, 24), std::pair(72, 32)}) {
    Machine limited = machine(ranks);
    limited.max_channels = most;
    for (const size_t least : sizes_for(limited).limits.small_bytes) EXPECT_EQ(least, 0U) << "not measured";
  }
}

TEST(Sizes, MoreThan32CtasForFewRanksOrWhereTheUserAllowsThem) {
  EXPECT_EQ(sizes_for(machine(4)).limits.channels, 96);
  EXPECT_EQ(sizes_for(machine(4)).limits.simple_channels, 64);
  EXPECT_EQ(sizes_for(machine(4)).limits.few_channels, 32);
  EXPECT_EQ(sizes_for(machine(8)).limits.channels, 32);
  Machine allowed = machine(8);
  allowed.max_channels = 64;
  EXPECT_EQ(sizes_for(allowed).limits.channels, 64);
}

TEST(Sizes, SlotsAreAsSmallAsTheUserWants) {
  Machine small = machine(4);
  small.buffer_bytes = 1024;  // less than a slot has otherwise
  const Sizes sizes = sizes_for(small);
  for (const Queue queue : {Queue::kSimple, Queue::kMessageSimple, Queue::kSums, Queue::kMesh, Queue::kLine}) {
    EXPECT_EQ(sizes.layouts[static_cast<size_t>(queue)].slot_bytes, 1024U);
  }
  EXPECT_EQ(sizes.limits.apart_sums.slot_bytes, 1024U);
}

TEST(Sizes, SlotsThatCannotBeAsLargeAsTheUserWantsAreNotSmall) {
  Machine large = machine(4);
  for (const size_t bytes : {size_t{1} << 32, size_t{1} << 34, size_t{1} << 39}) {
    large.buffer_bytes = bytes;
    EXPECT_GE(sizes_for(large).layouts[static_cast<size_t>(Queue::kSimple)].slot_bytes, 128U << 10) << bytes;
  }
}

TEST(Sizes, PartsOfAllRanksOnAGpuAreResidentAtOnceTwoOnAMultiprocessor) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    for (const int sharing : {1, 2, ranks}) {
      const Sizes sizes = sizes_for(machine(ranks, sharing));
      const QueueLayout& sums = sizes.layouts[static_cast<size_t>(Queue::kSums)];
      const QueueLayout& moves = sizes.layouts[static_cast<size_t>(Queue::kSimple)];
      const Limits& l = sizes.limits;
      EXPECT_LE(l.apart_sums.channels * algorithm::parts_of(algorithm::Division::kByRole, ranks) * sharing, 2 * 132);
      EXPECT_LE(l.apart_moves.channels * algorithm::parts_of(algorithm::Division::kByPeer, ranks) * sharing, 2 * 132);
      EXPECT_LE(l.apart_sums.channels * algorithm::streams_of(true), sums.channels);
      EXPECT_LE(l.apart_moves.channels * algorithm::streams_of(false), moves.channels);
    }
  }
}

TEST(Sizes, JoinedPartsAreOfferedBetweenThreeAndFourGpusWithCopyUnits) {
  Machine four = machine(4);
  EXPECT_EQ(sizes_for(four).limits.joined.channels, 0);
  four.bulk_bytes = kSharedBytesOfHopper;
  const Sizes sizes = sizes_for(four);
  EXPECT_EQ(sizes.limits.joined.channels, kCtasOfNccl);
  const QueueLayout& layout = sizes.layouts[static_cast<size_t>(Queue::kJoined)];
  EXPECT_EQ(layout.channels, algorithm::streams_of(true) * kCtasOfNccl);
  EXPECT_EQ(layout.slot_bytes, sizes.limits.joined.slot_bytes);
  EXPECT_LE(layout.bytes(), size_t{128} << 20);
  EXPECT_GE(layout.slots, static_cast<uint32_t>(algorithm::kLeastSlots));
  const auto offered = [&](auto&& change) {
    Machine other = four;
    change(other);
    return sizes_for(other).limits.joined.channels;
  };
  EXPECT_EQ(offered([](Machine& m) { m.ranks = 3; }), kCtasOfNccl);
  EXPECT_EQ(offered([](Machine& m) { m.ranks = 2; }), 0) << "no gain";
  EXPECT_EQ(offered([](Machine& m) { m.ranks = 8; }), 0) << "not measured";
  EXPECT_EQ(offered([](Machine& m) { m.in_host_memory = true; }), 0);
  EXPECT_EQ(offered([](Machine& m) { m.bulk_bytes = size_t{99} << 10; }), 0) << "as of compute capability 12.0";
  EXPECT_EQ(offered([](Machine& m) { m.max_channels = 5; }), 5);
  EXPECT_EQ(offered([](Machine& m) { m.ranks_per_gpu = 4; }), 24) << "a multiprocessor for each";
}

TEST(Sizes, JoinedPartsAreForFewCtas) {
  Machine four = machine(4);
  four.bulk_bytes = kSharedBytesOfHopper;
  const auto least = [&](int most, Collective what) {
    four.max_channels = most;
    return sizes_for(four).limits.joined_bytes[static_cast<size_t>(what)];
  };
  for (const Collective what : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllToAll}) {
    EXPECT_EQ(least(0, what), 0U) << "small CTAs are as fast";
    EXPECT_EQ(least(kCtasOfNccl + 1, what), 0U) << "not measured";
    EXPECT_GT(least(24, what), 0U);
    EXPECT_GT(least(kCtasOfNccl, what), 0U);
  }
  EXPECT_LT(least(24, Collective::kAllReduce), least(kCtasOfNccl, Collective::kAllReduce));
  EXPECT_EQ(least(24, Collective::kAllToAll), size_t{6} << 20) << "of blocks: 24 MB between 4";
}

TEST(Sizes, AMultiprocessorHasTheSharedMemoryOfJoinedParts) {
  for (const Collective what : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllToAll}) {
    EXPECT_LE(joined_shared_bytes(what, 4), kSharedBytesOfHopper);
    EXPECT_LE(movers_of(what, 4), kMostMovers);
  }
}

TEST(Sizes, PartsAreOfferedWhereThereIsRoomAndNobodyLimitsCtas) {
  EXPECT_EQ(sizes_for(machine(4)).limits.apart_sums.channels, 64);
  EXPECT_EQ(sizes_for(machine(4)).limits.apart_moves.channels, 28);
  EXPECT_GT(sizes_for(machine(8)).limits.apart_moves.channels, 0);
  EXPECT_EQ(sizes_for(machine(72)).limits.apart_moves.channels, 0);
  EXPECT_EQ(sizes_for(machine(6, 6)).limits.apart_sums.channels, 8);
  EXPECT_EQ(sizes_for(machine(8, 8)).limits.apart_sums.channels, 0);
  Machine other = machine(4);
  other.max_channels = 16;
  EXPECT_EQ(sizes_for(other).limits.apart_sums.channels, 0);
  other = machine(4);
  other.in_host_memory = true;
  EXPECT_EQ(sizes_for(other).limits.apart_sums.channels, 0);
  EXPECT_EQ(sizes_for(other).limits.apart_moves.channels, 0);
}

TEST(Sizes, SmallCtasHaveQueuesThatAreLargeEnoughTwoOnAMultiprocessor) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    for (const int sharing : {1, 2, ranks}) {
      const Sizes sizes = sizes_for(machine(ranks, sharing));
      const QueueLayout& line = sizes.layouts[static_cast<size_t>(Queue::kLine)];
      const QueueLayout& sums = sizes.layouts[static_cast<size_t>(Queue::kMesh)];
      EXPECT_LE(sizes.limits.line.channels, line.channels);
      EXPECT_LE(sizes.limits.line.slot_bytes, line.slot_bytes);
      EXPECT_LE(sizes.limits.mesh.channels, sums.channels);
      EXPECT_LE(sizes.limits.mesh.slot_bytes, sums.slot_bytes);
      EXPECT_LE(sizes.limits.line.channels * sharing, 2 * 132);
      EXPECT_LE(sizes.limits.mesh.channels * sharing, 2 * 132);
    }
  }
  EXPECT_EQ(sizes_for(machine(4)).limits.line.channels, 128);
  EXPECT_EQ(sizes_for(machine(4)).limits.mesh.channels, 128);
}

TEST(Sizes, CtasOfTwoChannelsOfAllRanksOnAGpuAreResidentAtOnce) {
  for (int sharing = 1; sharing <= 4; ++sharing) {
    Machine few = machine(4, sharing);
    few.max_channels = 24;
    const Limits limits = sizes_for(few).limits;
    for (const Limits::Small& offered : {limits.mesh, limits.line}) {
      EXPECT_EQ(offered.channels % offered.per_cta, 0);
      EXPECT_LE(offered.channels / offered.per_cta * sharing, 132) << sharing << " ranks share a GPU";
    }
  }
}

TEST(Sizes, ARankByItselfIsOfferedOneWayToCopy) {
  const Limits limits = sizes_for(machine(1)).limits;
  EXPECT_EQ(limits.line.channels, 0);
  EXPECT_EQ(limits.mesh.channels, 0);
  EXPECT_EQ(limits.apart_sums.channels, 0);
  EXPECT_EQ(limits.apart_moves.channels, 0);
}

TEST(Sizes, ALineHasSlotsForOneSenderAlone) {
  for (const int ranks : {2, 3, 8, 72}) {
    const QueueLayout line = sizes_for(machine(ranks)).layouts[static_cast<size_t>(Queue::kLine)];
    EXPECT_LT(line.bytes(), size_t{67} << 20) << ranks << " ranks";
    char region[1] = {};
    const char* end = region + line.bytes();
    for (int receiver = 0; receiver < ranks; ++receiver) {
      const int sender = (receiver + ranks - 1) % ranks;
      const char* first = line.slot(region, receiver, sender, 0, 0);
      const char* last = line.slot(region, receiver, sender, line.channels - 1, line.slots - 1);
      EXPECT_EQ(first, region + line.slots_at);
      EXPECT_EQ(last + line.slot_bytes, end);
    }
  }
}

TEST(Sizes, EightRanksFillSlotsInWholeStrides) {
  const Sizes sizes = sizes_for(machine(8));
  EXPECT_EQ(sizes.layouts[static_cast<size_t>(Queue::kSimple)].slot_bytes, uint32_t{128} << 10);
  EXPECT_LT(sizes.layouts[static_cast<size_t>(Queue::kSimple)].bytes(), size_t{116} << 20);
}

TEST(Sizes, ThroughHostMemoryLittleOfAnOperationIsUnderWayAtATimeHoweverLongItIs) {
  for (int ranks = 3; ranks <= 8; ++ranks) {
    Machine host = machine(ranks);
    host.in_host_memory = true;
    const Sizes sizes = sizes_for(host);
    const auto connections = static_cast<size_t>(ranks * (ranks - 1) * sizes.limits.simple_channels);
    const size_t slots = connections * sizes.layouts[static_cast<size_t>(Queue::kSimple)].slots;
    EXPECT_LE(slots * sizes.limits.least_chunk_bytes, size_t{48} << 20) << ranks << " ranks";
    EXPECT_GE(sizes.limits.simple_channels, 8);
    const size_t rounds = sizes.limits.least_rounds * sizes.limits.least_chunk_bytes;
    EXPECT_GE(rounds * static_cast<size_t>(sizes.limits.simple_channels), size_t{64} << 30) << "chunks are no longer";
  }
}

TEST(Sizes, LanesOfAllRanksOnAGpuAreResidentAtOnceAndFitIntoALaunch) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    for (const int sharing : {1, 2}) {
      for (const int multiprocessors : {132, 300}) {
        const Sizes sizes = sizes_for(machine(ranks, sharing, multiprocessors));
        for (const Queue queue : {Queue::kMessageLL, Queue::kMessageLL128, Queue::kMessageSimple}) {
          const int lanes = 2 * (ranks - 1) * sizes.layouts[static_cast<size_t>(queue)].channels;
          EXPECT_LE(lanes, ManyMessages::kMaxLanes);
          const int resident = multiprocessors * (sizes.message_threads == 128 ? 4 : 2);
          EXPECT_LE(lanes * sharing, resident) << ranks << " ranks, " << sharing << " on a GPU";
        }
      }
    }
  }
}

TEST(Sizes, MessagesOfAllProtocolsWithOnePeerAreResidentAtOnce) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    for (const int sharing : {1, 2}) {
      const Sizes sizes = sizes_for(machine(ranks, sharing));
      const auto lanes = [&](Queue queue) { return 2 * sizes.layouts[static_cast<size_t>(queue)].channels; };
      EXPECT_LE(lanes(Queue::kMessageLL128) + lanes(Queue::kMessageSimple), sizes.lanes_at_once)
          << ranks << " ranks, " << sharing << " on a GPU";
    }
  }
}

TEST(Sizes, FlagsOfDifferentChannelsShareNoLine) {
  for (const int ranks : {2, 8, 33, kMaxRanks}) {
    const QueueLayout layout = make_layout(ranks, 3, 2, 1024);
    char* const base = nullptr;
    const auto line = [&](uint32_t* word) { return (reinterpret_cast<char*>(word) - base) / 128; };
    for (int channel = 1; channel < 3; ++channel) {
      EXPECT_LT(line(layout.credit(base, channel - 1, ranks - 1)), line(layout.credit(base, channel, 0)));
      EXPECT_LT(line(layout.filled(base, channel - 1, ranks - 1)), line(layout.filled(base, channel, 0)));
    }
    EXPECT_LT(reinterpret_cast<char*>(layout.credit(base, 2, ranks - 1)) - base,
              static_cast<std::ptrdiff_t>(layout.filled_at));
    EXPECT_LT(reinterpret_cast<char*>(layout.filled(base, 2, ranks - 1)) - base,
              static_cast<std::ptrdiff_t>(layout.state_at));
  }
}

TEST(Sizes, SlotsOfDifferentSendersChannelsAndStepsDoNotOverlap) {
  const QueueLayout layout = make_layout(4, 3, 2, 1024);
  char* const base = nullptr;
  std::vector<std::ptrdiff_t> begins;
  for (int channel = 0; channel < 3; ++channel) {
    for (const int sender : {0, 1, 3}) {
      for (uint32_t step = 0; step < 2; ++step) begins.push_back(layout.slot(base, 2, sender, channel, step) - base);
    }
  }
  std::sort(begins.begin(), begins.end());
  EXPECT_EQ(begins.front(), static_cast<std::ptrdiff_t>(layout.slots_at));
  for (size_t i = 1; i < begins.size(); ++i) EXPECT_EQ(begins[i] - begins[i - 1], 1024);
  EXPECT_EQ(static_cast<size_t>(begins.back()) + 1024, layout.bytes());
}

TEST(Sizes, SlotsOfBriefOperationsOfDifferentChannelsStepsAndSendersDoNotOverlap) {
  for (const int ranks : {2, 3, 4, 8, kMaxRanks}) {
    const Sizes sizes = sizes_for(machine(ranks));
    for (const Queue queue : kBriefQueues) {
      const QueueLayout& layout = sizes.layouts[static_cast<size_t>(queue)];
      uint32_t next = layout.slots_at;
      for (uint32_t step = 0; step < layout.slots; ++step) {
        for (int channel = 0; channel < layout.channels; ++channel) {
          ASSERT_EQ(layout.brief_slots(channel, step), next);
          ASSERT_EQ(layout.brief_slots(channel, step + 5 * layout.slots), next);
          next += static_cast<uint32_t>(ranks) * layout.slot_bytes;
        }
      }
      EXPECT_EQ(next, layout.bytes());
      EXPECT_TRUE(std::has_single_bit(layout.slot_bytes)) << "others are slower";
      const size_t most = sizes.brief_bytes[static_cast<size_t>(queue)];
      EXPECT_LE(most, payload_of(queue, layout.slot_bytes));
      EXPECT_TRUE(queue == Queue::kLongBrief || most >= 512) << most;
    }
  }
}

TEST(Sizes, ThreeAndFourRanksHaveLongSlotsForBriefOperationsThatAreTooLongForTheUsualOnes) {
  const auto usual = static_cast<size_t>(Queue::kBriefLL128);
  const auto longer = static_cast<size_t>(Queue::kLongBrief);
  for (const int ranks : {3, 4}) {
    for (const int ranks_per_gpu : {1, ranks}) {
      const Sizes sizes = sizes_for(machine(ranks, ranks_per_gpu));
      EXPECT_EQ(sizes.brief_bytes[longer], 2 * sizes.brief_bytes[usual]);
      EXPECT_EQ(sizes.limits.two_brief_shots.block_bytes, sizes.brief_bytes[longer]);
      EXPECT_LT(sizes.layouts[longer].bytes(), size_t{25} << 20);
    }
  }
  Machine few = machine(4);
  few.max_channels = 24;
  EXPECT_EQ(sizes_for(few).brief_bytes[longer], 0U) << "not measured";
  for (const int ranks : {2, 5, 8}) EXPECT_EQ(sizes_for(machine(ranks)).brief_bytes[longer], 0U) << "not measured";
}

TEST(Sizes, WhatGoesInOneShotByLLIsBriefOfUpTo16Ranks) {
  for (int ranks = 2; ranks <= 16; ++ranks) {
    const Sizes sizes = sizes_for(machine(ranks));
    const size_t most = sizes.brief_bytes[static_cast<size_t>(Queue::kBriefLL)];
    const auto channels = static_cast<size_t>(sizes.layouts[static_cast<size_t>(Queue::kBriefLL)].channels);
    for (size_t bytes = 4; bytes <= sizes.limits.ll_bytes; bytes += 4) {
      const size_t wanted = std::clamp<size_t>(bytes / sizes.limits.bytes_per_channel, 1, channels);
      ASSERT_LE(bytes, most * wanted) << ranks << " ranks";
    }
  }
}

TEST(Sizes, NothingIsBriefForOneRankOrByAProtocolThatIsNotOffered) {
  for (const size_t bytes : sizes_for(machine(1)).brief_bytes) EXPECT_EQ(bytes, 0U);
  Machine host = machine(4);
  host.in_host_memory = true;
  host.lines_stay_whole = false;
  const Sizes sizes = sizes_for(host);
  EXPECT_GT(sizes.brief_bytes[static_cast<size_t>(Queue::kBriefLL)], 0U);
  EXPECT_EQ(sizes.brief_bytes[static_cast<size_t>(Queue::kBriefLL128)], 0U);
  EXPECT_EQ(sizes.brief_bytes[static_cast<size_t>(Queue::kLongBrief)], 0U);
}

}  // namespace
}  // namespace nitinol::cuda
