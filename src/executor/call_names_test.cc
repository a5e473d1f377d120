#include "executor/call_names.h"

#include <gtest/gtest.h>

namespace nitinol {
namespace {

NamedLaunch launch_of(std::initializer_list<uint64_t> counts) {
  NamedLaunch launch;
  for (const uint64_t count : counts) launch.add(Signature{0, count, 1});
  return launch;
}

TEST(CallNames, LeadToTheCall) {
  CallNames names;
  for (const bool captured : {false, true}) {
    const uint32_t name = names.name(launch_of({7, 8, 9}), captured);
    EXPECT_NE(name, CallNames::kUnknown);
    const auto call = names.find(name + 2);
    ASSERT_TRUE(call);
    EXPECT_EQ(call->launch, launch_of({7, 8, 9}));
    EXPECT_EQ(call->launch.collectives[call->which].count, 9U);
    EXPECT_FALSE(names.find(name + 3)) << "there are three";
  }
}

TEST(CallNames, OfMessagesLeadToWhomTheyAreFor) {
  CallNames names;
  NamedLaunch launch;
  launch.sends_to.add(3);
  launch.receives_from.add(70);
  const uint32_t name = names.name(launch, true);
  launch.sends_to.add(4);
  EXPECT_NE(names.name(launch, true), name);
  const auto call = names.find(name);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->launch.count, 0U);
  EXPECT_TRUE(call->launch.sends_to.has(3) && call->launch.receives_from.has(70));
  EXPECT_FALSE(call->launch.sends_to.has(4));
}

TEST(CallNames, OfAlikeCapturedLaunchesAreTheSame) {
  CallNames names;
  const uint32_t first = names.name(launch_of({1}), true);
  for (uint64_t i = 2; i < 5000; ++i) EXPECT_NE(names.name(launch_of({i}), true), first);
  EXPECT_EQ(names.name(launch_of({1}), true), first);
  EXPECT_EQ(names.find(first)->launch, launch_of({1}));
}

TEST(CallNames, AreNotGivenToMoreCapturedLaunchesThanFit) {
  CallNames names;
  const uint32_t first = names.name(launch_of({1}), true);
  uint64_t count = 1;
  while (names.name(launch_of({count}), true) != CallNames::kUnknown) ASSERT_LT(++count, 100'000U);
  EXPECT_EQ(names.name(launch_of({1}), true), first) << "but those that are there stay";
}

TEST(CallNames, OfOtherLaunchesStayAsLongAsTheyMayRun) {
  CallNames names;
  const uint32_t first = names.name(launch_of({1}), false);
  for (uint64_t i = 0; i < 1024; ++i) names.name(launch_of({100 + i}), false);
  EXPECT_EQ(names.find(first)->launch, launch_of({1}));
  for (uint64_t i = 0; i < 1024; ++i) names.name(launch_of({100 + i}), false);
  EXPECT_FALSE(names.find(first)) << "its place is another's";
}

TEST(CallNames, ThatWereNotGivenLeadNowhere) {
  CallNames names;
  for (const uint32_t name : {0U, 7U, 8U, 1U << 31, ~0U}) EXPECT_FALSE(names.find(name));
}

}  // namespace
}  // namespace nitinol
