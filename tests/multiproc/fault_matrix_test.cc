// Every fault at every moment: whatever one rank does or fails to do, the others get an error that names it, in time,
// and can go on with new communicators.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fault_cases.h"

namespace nitinol::testing {
namespace {

class FaultMatrix : public ::testing::TestWithParam<int> {};

std::string at_every_moment(int fault, bool blocking) {
  std::vector<Case> cases;
  for (int moment = 0; moment < kMoments; ++moment) {
    cases.push_back(
        {.fault = static_cast<Fault>(fault), .moment = static_cast<Moment>(moment), .victim = 1, .blocking = blocking});
  }
  return run_cases(cases, cases.size());
}

TEST_P(FaultMatrix, EndsAsItShouldAtEveryMoment) { EXPECT_EQ("", at_every_moment(GetParam(), true)); }

TEST_P(FaultMatrix, EndsAsItShouldAtEveryMomentOfNonBlockingCommunicators) {
  EXPECT_EQ("", at_every_moment(GetParam(), false));
}

/// The process that made the unique id is needed until the communicator is there.
TEST_P(FaultMatrix, EndsAsItShouldAtTheRendezvous) {
  const Case c{.fault = static_cast<Fault>(GetParam()), .moment = Moment::kInit, .victim = 0};
  EXPECT_EQ("", run_cases({c}, 1));
}

INSTANTIATE_TEST_SUITE_P(All, FaultMatrix, ::testing::Range(0, kFaults),
                         [](const ::testing::TestParamInfo<int>& which) {
                           return std::string(name_of(static_cast<Fault>(which.param)));
                         });

}  // namespace
}  // namespace nitinol::testing
