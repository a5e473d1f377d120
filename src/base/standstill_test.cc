#include "base/standstill.h"

#include <gtest/gtest.h>

namespace nitinol {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kStep{500};

TEST(Standstill, IsAsLongAsTheSameProcessesAreStopped) {
  Standstill standstill;
  const Standstill::Clock::time_point begin{};
  EXPECT_EQ(milliseconds(0), standstill.of("", begin));
  EXPECT_EQ(milliseconds(0), standstill.of("a", begin + kStep));
  EXPECT_EQ(kStep, standstill.of("a", begin + 2 * kStep));
  EXPECT_EQ(milliseconds(0), standstill.of("a, b", begin + 3 * kStep));
  EXPECT_EQ(kStep, standstill.of("a, b", begin + 4 * kStep));
  EXPECT_EQ(milliseconds(0), standstill.of("", begin + 5 * kStep));
}

TEST(Standstill, IsNotCountedWhileTheOneThatLooksStandsStillItself) {
  Standstill standstill;
  const Standstill::Clock::time_point begin{};
  EXPECT_EQ(milliseconds(0), standstill.of("a", begin));
  EXPECT_EQ(milliseconds(0), standstill.of("a", begin + 100 * kStep));
  EXPECT_EQ(kStep, standstill.of("a", begin + 101 * kStep));
}

}  // namespace
}  // namespace nitinol
