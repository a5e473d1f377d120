// Layouts, expectations and the command line.
#include "operation.h"

#include <gtest/gtest.h>

#include "library.h"
#include "options.h"
#include "report.h"
#include "session.h"

namespace nitinol::perf {
namespace {

TEST(Operation, ExpectedSegmentsTileTheReceiveBuffer) {
  constexpr int kRanks = 5;
  constexpr size_t kCount = 7;
  for (const OperationTraits& traits : all_operations()) {
    for (int rank = 0; rank < kRanks; ++rank) {
      size_t covered = 0;
      for (const Segment& segment : expected_segments(traits.operation, kCount, {rank, kRanks, 2})) {
        EXPECT_EQ(segment.offset, covered) << traits.name;
        covered += segment.count;
      }
      const bool root_only = traits.operation == Operation::kReduce || traits.operation == Operation::kGather;
      const size_t recv = layout_of(traits.operation, kCount, rank, kRanks).recv;
      EXPECT_EQ(covered, root_only && rank != 2 ? 0 : recv) << traits.name;
    }
  }
}

TEST(Operation, InPlaceBuffersLieInTheLargerOne) {
  const Layout gather = layout_of(Operation::kAllGather, 10, 3, 4);
  EXPECT_EQ(gather.send_offset, 30U);
  EXPECT_EQ(gather.recv_offset, 0U);
  EXPECT_EQ(gather.larger(), 40U);
  const Layout scatter = layout_of(Operation::kReduceScatter, 10, 3, 4);
  EXPECT_EQ(scatter.send_offset, 0U);
  EXPECT_EQ(scatter.recv_offset, 30U);
}

TEST(Operation, BusFactorsAreThoseOfTheBusiestWire) {
  EXPECT_DOUBLE_EQ(bus_factor(Operation::kAllReduce, 8), 1.75);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::kAllGather, 8), 0.875);
  EXPECT_DOUBLE_EQ(bus_factor(Operation::kBroadcast, 8), 1);
}

TEST(Operation, CountsRoundDownButNotToNothing) {
  EXPECT_EQ(count_for_bytes(Operation::kAllReduce, 1000, 4, 8), 250U);
  EXPECT_EQ(count_for_bytes(Operation::kAllGather, 1000, 4, 8), 31U);
  EXPECT_EQ(count_for_bytes(Operation::kAllToAll, 8, 4, 8), 1U);
  EXPECT_EQ(count_for_bytes(Operation::kAllReduce, 0, 4, 8), 0U);
}

TEST(Options, BytesMayHaveUnits) {
  EXPECT_EQ(parse_bytes("8"), 8U);
  EXPECT_EQ(parse_bytes("4K"), 4096U);
  EXPECT_EQ(parse_bytes("1.5m"), 3U << 19);
  EXPECT_EQ(parse_bytes("2G"), 2ULL << 30);
  EXPECT_THROW(parse_bytes("K"), PerfError);
  EXPECT_THROW(parse_bytes("-1"), PerfError);
  EXPECT_THROW(parse_bytes("3T"), PerfError);
  EXPECT_THROW(parse_bytes("3Kx"), PerfError);
  EXPECT_THROW(parse_bytes("1e30"), PerfError);
  EXPECT_THROW(parse_bytes("inf"), PerfError);
}

Options options_of(std::vector<std::string> words) {
  words.insert(words.begin(), "nitinol-perf");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  ParseResult result = parse_options(static_cast<int>(arguments.size()), arguments.data());
  if (result.exit_code) throw PerfError("exit code " + std::to_string(*result.exit_code));
  return result.options;
}

TEST(Options, TheLargestSizeFollowsTheSmallestUnlessItIsGiven) {
  EXPECT_EQ(options_of({}).max_bytes, 4U << 20);
  EXPECT_EQ(options_of({"-b", "16M"}).max_bytes, 16U << 20);
  EXPECT_EQ(options_of({"-b", "8", "-e", "8"}).max_bytes, 8U);
  EXPECT_THROW(options_of({"-b", "2K", "-e", "1K"}), PerfError);
}

TEST(Options, WhatMakesNoSenseIsRefusedBeforeAnythingRuns) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-g", "0"},
                                             {"-t", "-1"},
                                             {"-p", "0"},
                                             {"-n", "0"},
                                             {"-f", "1"},
                                             {"-f", "nan"},
                                             {"-d", "quad"},
                                             {"-o", "xor"},
                                             {"-r", "-1"},
                                             {"--json", "/nonexistent/x.json"}}) {
    EXPECT_THROW(options_of(words), PerfError) << words[0] << " " << words[1];
  }
}

TEST(Options, SizesGrowByFactorOrStepFromZero) {
  Options options;
  options.min_bytes = 0;
  options.max_bytes = 64;
  options.factor = 4;
  EXPECT_EQ(sizes_of(options), (std::vector<size_t>{0, 1, 4, 16, 64}));
  options.step_bytes = 30;
  EXPECT_EQ(sizes_of(options), (std::vector<size_t>{0, 30, 60}));
}

TEST(Options, CasesLeaveOutSizesOfEqualCount) {
  Options options;
  options.operations = {Operation::kAllToAll};
  options.types = {find_element_type("float")};
  options.min_bytes = 4;
  options.max_bytes = 64;
  options.factor = 2;
  const std::vector<Case> cases = cases_of(options, 8);
  ASSERT_EQ(cases.size(), 2U);  // all-to-all is never in place
  EXPECT_EQ(cases[0].count, 1U);
  EXPECT_EQ(cases[1].count, 2U);
}

TEST(Options, ARootOutsideTheTeamIsRefused) {
  Options options;
  options.operations = {Operation::kBroadcast};
  options.types = {find_element_type("float")};
  options.roots = {4};
  EXPECT_THROW(cases_of(options, 4), PerfError);
}

TEST(Options, AHypercubeNeedsAPowerOfTwoOfRanks) {
  Options options;
  options.operations = {Operation::kHypercube};
  options.types = {find_element_type("float")};
  EXPECT_THROW(cases_of(options, 6), PerfError);
  EXPECT_NO_THROW(cases_of(options, 8));
}

TEST(Report, SpreadIsMedianLeastAndMost) {
  const Spread odd = spread_of({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.most, 3);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).median, 2.5);
}

}  // namespace
}  // namespace nitinol::perf
