#include "comm/life_cycle.h"

#include <array>

#include "base/error.h"

namespace nitinol {
namespace {

using Row = std::array<Verdict, kStages>;

constexpr Verdict kYes = Verdict::kAllowed;
constexpr Verdict kState = Verdict::kReturnsState;
constexpr Verdict kUsage = Verdict::kInvalidUsage;
constexpr Verdict kArgument = Verdict::kInvalidArgument;
constexpr Verdict kNothing = Verdict::kNoEffect;

// While an earlier call is under way another is refused by an error that nobody takes for "it goes on"; but an
// operation on a communicator that is still being made by its state, as programs know it. So is all on one that failed
// while it was being made, whatever stands here (Communicator::require). Programs that shrink with abort, PyTorch among
// them, finalize the old communicator before they destroy it, and the ranks that were left out do not: nobody waits.
// clang-format off
constexpr std::array<Row, kCalls> kTable = {{
    //                initialising ready busy       failed  revoking   revoked   regrouping stopped   finalising finalised
    /* query       */ {kState,     kYes, kYes,      kState, kYes,      kYes,     kYes,      kYes,     kYes,      kYes},
    /* communicate */ {kState,     kYes, kArgument, kState, kUsage,    kUsage,   kUsage,    kUsage,   kArgument, kArgument},
    /* register    */ {kArgument,  kYes, kArgument, kState, kUsage,    kUsage,   kUsage,    kUsage,   kArgument, kArgument},
    /* split       */ {kArgument,  kYes, kArgument, kState, kArgument, kYes,     kArgument, kYes,     kArgument, kArgument},
    /* shrink      */ {kArgument,  kYes, kArgument, kState, kArgument, kYes,     kArgument, kYes,     kArgument, kArgument},
    /* shrink abort*/ {kArgument,  kYes, kYes,      kYes,   kYes,      kYes,     kArgument, kYes,     kArgument, kArgument},
    /* revoke      */ {kArgument,  kYes, kYes,      kYes,   kNothing,  kNothing, kNothing,  kNothing, kArgument, kArgument},
    /* finalise    */ {kArgument,  kYes, kArgument, kState, kUsage,    kUsage,   kUsage,    kNothing, kArgument, kArgument},
}};
// clang-format on

}  // namespace

Stage stage_of(Phase phase, ncclResult_t state, Revocation revocation) {
  const bool failed = state != ncclSuccess && state != ncclInProgress;
  switch (phase) {
    case Phase::kInitialising: return Stage::kInitialising;
    case Phase::kReady: break;
    case Phase::kRevoking: return revocation.regroups ? Stage::kRegrouping : Stage::kRevoking;
    case Phase::kRevoked:
      if (revocation.regroups) return Stage::kRegrouping;
      return revocation.to_shrink ? Stage::kStopped : Stage::kRevoked;
    case Phase::kFinalising: return failed ? Stage::kFailed : Stage::kFinalising;
    case Phase::kFinalised: return failed ? Stage::kFailed : Stage::kFinalised;
  }
  if (failed) return Stage::kFailed;
  return state == ncclInProgress ? Stage::kBusy : Stage::kReady;
}

Verdict verdict_on(Call call, Stage stage) { return kTable[static_cast<size_t>(call)][static_cast<size_t>(stage)]; }

bool permits(Call call, Stage stage, const char* function) {
  switch (verdict_on(call, stage)) {
    case Verdict::kNoEffect: return false;
    case Verdict::kInvalidUsage: fail(ncclInvalidUsage, "{}: the communicator {}", function, explain(stage));
    case Verdict::kInvalidArgument: fail(ncclInvalidArgument, "{}: the communicator {}", function, explain(stage));
    case Verdict::kAllowed:
    case Verdict::kReturnsState: break;
  }
  return true;
}

const char* explain(Stage stage) {
  switch (stage) {
    case Stage::kInitialising: return "is still being initialised";
    case Stage::kReady: return "is ready";
    case Stage::kBusy: return "still works on an earlier call (ncclCommGetAsyncError tells when it is done)";
    case Stage::kFailed: return "has failed";
    case Stage::kRevoking: return "is being revoked";
    case Stage::kRevoked: return "was revoked: only splitting, shrinking, destroying and aborting it are left";
    case Stage::kStopped: return "was stopped by ncclCommShrink: it can be split, shrunk, destroyed or aborted";
    case Stage::kRegrouping:
      return "was revoked, and is still being split or shrunk (ncclCommGetAsyncError tells when it is done)";
    case Stage::kFinalising:
    case Stage::kFinalised: return "has been finalized";
  }
  return "";
}

}  // namespace nitinol
