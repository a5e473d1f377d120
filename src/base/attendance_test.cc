#include "base/attendance.h"

#include <gtest/gtest.h>

namespace nitinol {
namespace {

using std::chrono::milliseconds;

TEST(Attendance, LeavesOutTimesInWhichNobodyLooked) {
  Attendance attendance;
  Attendance::Clock::time_point now{};
  const auto missed_after = [&](milliseconds time) { return attendance.missed(now += time); };
  EXPECT_EQ(missed_after(milliseconds(5000)), milliseconds(0)) << "the first look";
  EXPECT_EQ(missed_after(milliseconds(100)), milliseconds(0));
  EXPECT_EQ(missed_after(milliseconds(900)), milliseconds(0));
  EXPECT_EQ(missed_after(milliseconds(7000)), milliseconds(7000));
  EXPECT_EQ(missed_after(milliseconds(100)), milliseconds(0));
}

}  // namespace
}  // namespace nitinol
