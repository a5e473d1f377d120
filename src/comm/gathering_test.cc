#include "comm/gathering.h"

#include <gmock/gmock.h>

namespace nitinol {
namespace {

using ::testing::UnorderedElementsAre;

Gathering::Leaver leaver(int rank) { return {rank, nullptr}; }

TEST(Gathering, SetsOffOnceAllHaveComeWhoWill) {
  Gathering gathering(3);
  EXPECT_TRUE(gathering.add(leaver(4)));
  EXPECT_FALSE(gathering.sets_off());
  EXPECT_TRUE(gathering.leave_out(7));
  EXPECT_FALSE(gathering.sets_off());
  EXPECT_THAT(gathering.done_with(), UnorderedElementsAre(4, 7));
  EXPECT_TRUE(gathering.add(leaver(2)));
  EXPECT_TRUE(gathering.sets_off());
  EXPECT_FALSE(gathering.leave_out(2)) << "they are on their way";
  EXPECT_EQ(gathering.leavers.size(), 2U);
}

TEST(Gathering, WaitsNoMoreForOneThatIsAbortedWhenItHasCome) {
  Gathering gathering(2);
  EXPECT_TRUE(gathering.add(leaver(0)));
  EXPECT_TRUE(gathering.leave_out(0));
  EXPECT_FALSE(gathering.sets_off());
  EXPECT_TRUE(gathering.leavers.empty());
  EXPECT_TRUE(gathering.add(leaver(1)));
  EXPECT_TRUE(gathering.sets_off());
}

/// Else it would count twice: the others would set off without one of them, or twice.
TEST(Gathering, DoesNotCountOneThatComesAfterAThreadHasAbortedIt) {
  Gathering gathering(2);
  EXPECT_TRUE(gathering.leave_out(0));
  EXPECT_FALSE(gathering.sets_off());
  EXPECT_FALSE(gathering.add(leaver(0)));
  EXPECT_FALSE(gathering.sets_off());
  EXPECT_TRUE(gathering.add(leaver(1)));
  EXPECT_TRUE(gathering.sets_off());
  EXPECT_FALSE(gathering.add(leaver(0)));
  EXPECT_EQ(gathering.leavers.size(), 1U);
}

}  // namespace
}  // namespace nitinol
