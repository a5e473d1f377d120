#include "base/time_stamp.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace nitinol {
namespace {

int64_t system_nanoseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

constexpr int64_t kTolerance = 20'000'000;  // a busy machine may stop the test between two readings

TEST(TimeStamps, TellTheTimeOfDay) {
  const int64_t before = system_nanoseconds();
  const int64_t stamp = TimeStamp::now();
  const int64_t after = system_nanoseconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const TimeScale scale;
  EXPECT_GE(scale.nanoseconds(stamp), before - kTolerance);
  EXPECT_LE(scale.nanoseconds(stamp), after + kTolerance);
}

TEST(TimeStamps, KeepTheDistanceOfTheMomentsTheyWereTaken) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t first = TimeStamp::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const int64_t second = TimeStamp::now();
  const auto passed = std::chrono::steady_clock::now() - start;
  ASSERT_GT(second, first);
  const TimeScale scale;
  const int64_t told = scale.nanoseconds(second) - scale.nanoseconds(first);
  EXPECT_GE(told, 50'000'000 - kTolerance);
  EXPECT_LE(told, std::chrono::nanoseconds(passed).count() + kTolerance);
}

TEST(TimeStamps, ToldByOneScaleKeepTheirOrder) {
  std::vector<int64_t> stamps(1000);
  for (int64_t& stamp : stamps) stamp = TimeStamp::now();
  const TimeScale scale;
  for (size_t i = 1; i < stamps.size(); ++i) {
    EXPECT_LE(scale.nanoseconds(stamps[i - 1]), scale.nanoseconds(stamps[i]));
  }
}

TEST(TimeStamps, OfNothingAreNothing) { EXPECT_EQ(TimeScale().nanoseconds(0), 0); }

}  // namespace
}  // namespace nitinol
