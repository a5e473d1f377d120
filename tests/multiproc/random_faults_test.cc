// Faults drawn at random, of any rank: none may hang.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <vector>

#include "fault_cases.h"

namespace nitinol::testing {
namespace {

/// Any fault at any moment; during init rank 0, which hosts the rendezvous, is spared.
Case draw(std::mt19937& random) {
  while (true) {
    const Case c{static_cast<Fault>(random() % kFaults), static_cast<Moment>(random() % kMoments),
                 static_cast<int>(random() % 3)};
    const bool host_fails = c.moment == Moment::kInit && c.victim == 0;
    if (outcome_of(c) != Outcome::kNoCase && !host_fails) return c;
  }
}

// NITINOL_TEST_FAULTS: how many; NITINOL_TEST_FAULTS_AT_ONCE: how many of them at a time.
TEST(RandomFaults, NeverHang) {
  const char* const wish = getenv("NITINOL_TEST_FAULTS");
  const char* const at_once = getenv("NITINOL_TEST_FAULTS_AT_ONCE");
  std::mt19937 random(20'26);
  std::vector<Case> cases(wish != nullptr ? static_cast<size_t>(std::atoi(wish)) : 30);
  for (Case& c : cases) c = draw(random);
  EXPECT_EQ("", run_cases(cases, at_once != nullptr ? static_cast<size_t>(std::atoi(at_once)) : 6));
}

}  // namespace
}  // namespace nitinol::testing
