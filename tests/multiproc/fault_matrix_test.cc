// Every fault at every moment: whatever one rank does or fails to do, the others get an error that names it, in time,
// and can go on with new communicators.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fault_cases.h"

namespace nitinol::testing {
namespace {

class FaultMatrix : public ::testing::TestWithParam<int> {};

TEST_P(FaultMatrix, EndsAsItShouldAtEveryMoment) {
  std::vector<Case> cases;
  for (int moment = 0; moment < kMoments; ++moment) {
    cases.push_back({static_cast<Fault>(GetParam()), static_cast<Moment>(moment), 1});
  }
  EXPECT_EQ("", run_cases(cases, cases.size()));
}

INSTANTIATE_TEST_SUITE_P(All, FaultMatrix, ::testing::Range(0, kFaults),
                         [](const ::testing::TestParamInfo<int>& which) {
                           return std::string(name_of(static_cast<Fault>(which.param)));
                         });

}  // namespace
}  // namespace nitinol::testing
