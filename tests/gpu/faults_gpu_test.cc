// A selection of the fault matrix on GPUs: processes that share one, or have one each. Whatever a rank does, the others
// hear of it by name, in time, and go on with new communicators.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fault_cases.h"

namespace nitinol::testing {
namespace {

/// Processes on one GPU take turns: with more at once everything lasts long.
constexpr size_t kAtOnce = 2;

class FaultsOnGpus : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultsOnGpus, EndAsTheyShould) {
  std::vector<Case> cases;
  for (const Moment moment : {Moment::kFirstUse, Moment::kSteady, Moment::kGroup, Moment::kFinalize}) {
    cases.push_back({GetParam(), moment, 1});
  }
  EXPECT_EQ("", run_cases(cases, kAtOnce));
}

INSTANTIATE_TEST_SUITE_P(Selected, FaultsOnGpus,
                         ::testing::Values(Fault::kKill, Fault::kStop, Fault::kExit, Fault::kNeverCalls,
                                           Fault::kWrongCall, Fault::kWrongOrder, Fault::kWrongSize),
                         [](const ::testing::TestParamInfo<Fault>& which) {
                           return std::string(name_of(which.param));
                         });

}  // namespace
}  // namespace nitinol::testing
