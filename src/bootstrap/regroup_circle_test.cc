// Who waits for ever, of ranks that meet again.
#include "bootstrap/regroup_circle.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace nitinol {
namespace {

using State = RegroupWord::State;
using Involved = RegroupCircle::Involved;

RegroupWord meets_without(std::vector<int> excluded, int rank, std::uint64_t number = 1) {
  RegroupWord word;
  word.state = State::kMeets;
  word.rank = rank;
  word.meeting = 10 + static_cast<std::uint64_t>(rank);
  word.number = number;
  word.excluded = std::move(excluded);
  return word;
}

RegroupWord in_state(State state, RegroupWord word) {
  word.state = state;
  return word;
}

RegroupWord repairs(RegroupWord word) {
  word.repairs = true;
  return word;
}

std::optional<RegroupCircle> circle(const RegroupWord& mine, const std::vector<RegroupWord>& others,
                                    const std::set<int>& together = {}) {
  RegroupWords words;
  for (const RegroupWord& other : others) words[other.rank] = other;
  return circle_of(mine, words, together, [](int rank) { return formatted("rank {}", rank); });
}

void expect_circle(const std::optional<RegroupCircle>& found, const std::string& sentence, const Involved& involved,
                   ncclResult_t code = ncclInvalidUsage) {
  ASSERT_TRUE(found);
  EXPECT_EQ(found->sentence, sentence);
  EXPECT_EQ(found->involved, involved);
  EXPECT_EQ(found->code, code);
}

TEST(RegroupCircle, OfTwoThatExcludeDifferentOnesNamesBoth) {
  expect_circle(circle(meets_without({3}, 0), {meets_without({2, 3}, 1)}),
                "rank 0 excludes 3, but rank 1 excludes 2, 3", {{0, 10}, {1, 11}});
}

TEST(RegroupCircle, IsNoneWithThoseThatMayYetCome) {
  const RegroupWord mine = meets_without({3}, 0);
  EXPECT_FALSE(circle(mine, {}));
  EXPECT_FALSE(circle(mine, {in_state(State::kIdle, meets_without({2}, 1))}));
  EXPECT_FALSE(circle(mine, {in_state(State::kFailed, meets_without({2}, 1))}));
}

TEST(RegroupCircle, IsNoneInOneMeeting) {
  EXPECT_FALSE(circle(meets_without({3}, 0), {meets_without({3}, 1), meets_without({3}, 2)}, {1, 2}));
}

TEST(RegroupCircle, IsNoneIfTheOtherMeetsThoseWhoMayYetCome) {
  EXPECT_FALSE(circle(meets_without({3}, 0), {meets_without({0, 3}, 1)}));
}

TEST(RegroupCircle, ClosesByOneThatIsInTheSameMeeting) {
  expect_circle(circle(meets_without({3}, 0), {meets_without({0, 3}, 1)}, {2}),
                "rank 0 excludes 3, but rank 1 excludes 0, 3", {{0, 10}, {1, 11}});
}

TEST(RegroupCircle, GoesByAnyNumberOfRanks) {
  const RegroupWord mine = meets_without({2, 3}, 0);
  expect_circle(circle(mine, {meets_without({0, 3}, 1), meets_without({1, 3}, 2)}),
                "rank 0 excludes 2, 3, but rank 1 excludes 0, 3", {{0, 10}, {1, 11}, {2, 12}});
  EXPECT_FALSE(circle(mine, {meets_without({0, 3}, 1), meets_without({0, 1}, 2)}));
}

TEST(RegroupCircle, LeavesOutWhoOnlyWaitsForIt) {
  const RegroupWord late = meets_without({0, 1}, 3);
  expect_circle(circle(meets_without({2, 3}, 0), {meets_without({3}, 1), late}),
                "rank 0 excludes 2, 3, but rank 1 excludes 3", {{0, 10}, {1, 11}});
}

TEST(RegroupCircle, OfMeetingsWithOneListNamesTheirNumbers) {
  expect_circle(circle(meets_without({2}, 0), {meets_without({2}, 1, 4)}),
                "rank 0 excludes 2 for the 1. time, but rank 1 excludes 2 for the 4. time", {{0, 10}, {1, 11}});
}

TEST(RegroupCircle, OfARepairIsWithWhomLeavesThisRankOut) {
  const RegroupWord mine = meets_without({}, 0);
  const RegroupWord other = meets_without({0}, 1);
  EXPECT_FALSE(circle(mine, {other}));
  EXPECT_FALSE(circle(repairs(mine), {other}));
  EXPECT_FALSE(circle(mine, {repairs(other)}));
  expect_circle(circle(repairs(mine), {repairs(other)}), "rank 0 excludes nobody, but rank 1 excludes 0",
                {{0, 10}, {1, 11}});
}

TEST(RegroupCircle, IsWithWhoHasLeft) {
  const RegroupWord mine = meets_without({3}, 0);
  expect_circle(circle(mine, {in_state(State::kLeft, meets_without({}, 1))}),
                "rank 0 excludes 3, but rank 1 has left the communicator", {{1, 11}}, ncclRemoteError);
  expect_circle(circle(mine, {in_state(State::kLeft, meets_without({0, 2}, 1))}),
                "rank 0 excludes 3, but rank 1 has left the communicator after a call that excluded 0, 2",
                {{0, 10}, {1, 11}});
  EXPECT_FALSE(circle(mine, {in_state(State::kLeft, meets_without({}, 3))}));
}

TEST(RegroupCircle, NamesWhoIsThereRatherThanWhoHasLeft) {
  const RegroupWord left = in_state(State::kLeft, meets_without({0}, 1));
  expect_circle(circle(meets_without({3}, 0), {left, meets_without({1}, 2)}),
                "rank 0 excludes 3, but rank 2 excludes 1", {{0, 10}, {1, 11}, {2, 12}});
}

TEST(RegroupCircle, IsNoneWithWhoHasNotFoundYetThatAnotherLeft) {
  const RegroupWord left = in_state(State::kLeft, meets_without({}, 2));
  EXPECT_FALSE(circle(meets_without({2}, 0), {meets_without({}, 1), left}));
}

}  // namespace
}  // namespace nitinol
