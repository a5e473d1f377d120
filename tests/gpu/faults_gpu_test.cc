// A selection of the fault matrix on GPUs: processes that share one, or have one each. Whatever a rank does, the others
// hear of it by name, in time, and go on with new communicators.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fault_cases.h"

namespace nitinol::testing {
namespace {

/// CUDA starts up for one process after the other, about a second each: with more at once all only wait longer.
constexpr size_t kAtOnce = 2;

/// Where a fault shows something that it does not show elsewhere.
std::vector<Moment> moments_of(Fault fault) {
  if (fault == Fault::kExit) return {Moment::kFirstUse, Moment::kSteady};
  if (fault == Fault::kWrongCall) return {Moment::kFirstUse, Moment::kFinalize};
  if (fault == Fault::kWrongOrder || fault == Fault::kWrongSize) return {Moment::kSteady, Moment::kGroup};
  return {Moment::kFirstUse, Moment::kSteady, Moment::kGroup, Moment::kFinalize};
}

class FaultsOnGpus : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultsOnGpus, EndAsTheyShould) {
  std::vector<Case> cases;
  for (const Moment moment : moments_of(GetParam())) cases.push_back({GetParam(), moment, 1});
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
