#include "comm/life_cycle.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace nitinol {
namespace {

TEST(LifeCycle, PhaseAndStateGiveTheStage) {
  EXPECT_EQ(stage_of(Phase::kInitialising, ncclInProgress), Stage::kInitialising);
  EXPECT_EQ(stage_of(Phase::kInitialising, ncclRemoteError), Stage::kInitialising);
  EXPECT_EQ(stage_of(Phase::kReady, ncclSuccess), Stage::kReady);
  EXPECT_EQ(stage_of(Phase::kReady, ncclInProgress), Stage::kBusy);
  EXPECT_EQ(stage_of(Phase::kReady, ncclRemoteError), Stage::kFailed);
  EXPECT_EQ(stage_of(Phase::kRevoking, ncclInProgress), Stage::kRevoking);
  EXPECT_EQ(stage_of(Phase::kRevoked, ncclSuccess), Stage::kRevoked);
  EXPECT_EQ(stage_of(Phase::kRevoked, ncclSuccess, {.to_shrink = true}), Stage::kStopped);
  EXPECT_EQ(stage_of(Phase::kRevoked, ncclInProgress, {.regroups = true}), Stage::kRegrouping);
  // A shrink that stops it first.
  EXPECT_EQ(stage_of(Phase::kRevoking, ncclInProgress, {.to_shrink = true, .regroups = true}), Stage::kRegrouping);
  EXPECT_EQ(stage_of(Phase::kFinalising, ncclInProgress), Stage::kFinalising);
  EXPECT_EQ(stage_of(Phase::kFinalising, ncclRemoteError), Stage::kFailed);
  EXPECT_EQ(stage_of(Phase::kFinalised, ncclSuccess), Stage::kFinalised);
}

// The table once more, as the contract has it: one letter for each stage, in their order. y allowed, s the state, u
// invalid usage, a invalid argument, n no effect.
TEST(LifeCycle, EveryEdgeIsAsTheContractSays) {
  const std::map<Call, std::string> contract = {
      {Call::kQuery, "syysyyyyyy"},  {Call::kCommunicate, "syasuuuuaa"}, {Call::kRegister, "ayasuuuuaa"},
      {Call::kSplit, "ayasayayaa"},  {Call::kShrink, "ayasayayaa"},      {Call::kShrinkAbort, "ayyyyyayaa"},
      {Call::kRevoke, "ayyynnnnaa"}, {Call::kFinalise, "ayasuuunaa"},
  };
  const std::map<char, Verdict> verdicts = {{'y', Verdict::kAllowed},
                                            {'s', Verdict::kReturnsState},
                                            {'u', Verdict::kInvalidUsage},
                                            {'a', Verdict::kInvalidArgument},
                                            {'n', Verdict::kNoEffect}};
  ASSERT_EQ(contract.size(), static_cast<size_t>(kCalls));
  for (const auto& [call, row] : contract) {
    for (int stage = 0; stage < kStages; ++stage) {
      EXPECT_EQ(verdict_on(call, static_cast<Stage>(stage)), verdicts.at(row[static_cast<size_t>(stage)]))
          << "call " << static_cast<int>(call) << " in stage " << stage;
    }
  }
}

}  // namespace
}  // namespace nitinol
