// Faults drawn at random, of any rank: none may hang.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <vector>

#include "fault_cases.h"

namespace nitinol::testing {
namespace {

constexpr int kLongestDelay = 20'000;  // microseconds, in which a call is repeated some hundred times

Case draw(std::mt19937& random) {
  while (true) {
    Case c{.fault = static_cast<Fault>(random() % kFaults),
           .moment = static_cast<Moment>(random() % kMoments),
           .victim = static_cast<int>(random() % 3),
           .blocking = random() % 2 == 0};
    if (outcome_of(c) == Outcome::kNoCase) continue;
    if (can_strike_later(c) && random() % 4 != 0) c.delay = std::chrono::microseconds(random() % kLongestDelay);
    return c;
  }
}

// NITINOL_TEST_FAULTS: how many; NITINOL_TEST_FAULTS_SEED: which; NITINOL_TEST_FAULTS_AT_ONCE: how many at a time.
TEST(RandomFaults, NeverHang) {
  const char* const wish = getenv("NITINOL_TEST_FAULTS");
  const char* const at_once = getenv("NITINOL_TEST_FAULTS_AT_ONCE");
  const char* const seed = getenv("NITINOL_TEST_FAULTS_SEED");
  std::mt19937 random(seed != nullptr ? static_cast<unsigned>(std::atoi(seed)) : 2026U);
  std::vector<Case> cases(wish != nullptr ? static_cast<size_t>(std::atoi(wish)) : 30);
  for (Case& c : cases) c = draw(random);
  EXPECT_EQ("", run_cases(cases, at_once != nullptr ? static_cast<size_t>(std::atoi(at_once)) : 6));
}

}  // namespace
}  // namespace nitinol::testing
