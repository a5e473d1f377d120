// Which calls a communicator allows when: the table of its life cycle, as values.
//
//                  set_up                  finalise                 all ranks came
//   initialising ----------> ready/busy ---------------> finalising ---------------> finalised
//        |                    |    |                        |
//        |                    |    +------ failed ----------+      any failure; its code stays, but for revoking
//        |                    | revoke       | revoke              ncclCommRevoke, or ncclCommShrink with abort
//        |                    +-> revoking <-+
//        |                           |                             once operations have ended
//        |                        revoked                          the state is ncclSuccess again
//        |                         ^   |  split, shrink            without blocking, or ncclCommShrink with abort
//        |          it has ended   |   v
//        |                       regrouping                        the state is ncclInProgress
//        +-> (failed)                                              nothing but destroy and abort is left, which
//                                                                  end it from anywhere
#pragma once

#include "nccl.h"

namespace nitinol {

/// How far a communicator has come by itself; with its result state it gives the stage.
enum class Phase : int { kInitialising, kReady, kRevoking, kRevoked, kFinalising, kFinalised };

enum class Stage : int {
  kInitialising,  ///< or failed to be initialised: nothing but destroy and abort is left then
  kReady,
  kBusy,  ///< an earlier call on a non-blocking communicator is still under way
  kFailed,
  kRevoking,
  kRevoked,
  kRegrouping,  ///< revoked, and a split or shrink is still under way
  kStopped,     ///< revoked by shrinking with abort alone
  kFinalising,
  kFinalised,
};
inline constexpr int kStages = 10;

/// Calls on a communicator, as far as they are allowed alike. The state query, destroy and abort are always allowed.
enum class Call : int {
  kQuery,
  kCommunicate,
  kRegister,  ///< buffers, windows, operators, a limit of time
  kSplit,
  kShrink,
  kShrinkAbort,
  kRevoke,
  kFinalise,
};
inline constexpr int kCalls = 8;

enum class Verdict : int {
  kAllowed,
  kReturnsState,  ///< refused with what ncclCommGetAsyncError reports
  kInvalidUsage,
  kInvalidArgument,
  kNoEffect,  ///< succeeds without doing anything
};

/// Or is being.
constexpr bool was_revoked(Phase phase) { return phase == Phase::kRevoking || phase == Phase::kRevoked; }
/// How a communicator was revoked, and what goes on since.
struct Revocation {
  bool to_shrink = false;  ///< by ncclCommShrink with abort, not by ncclCommRevoke
  bool regroups = false;   ///< a split or shrink goes on in the background
};
Stage stage_of(Phase phase, ncclResult_t state, Revocation revocation = {});
Verdict verdict_on(Call call, Stage stage);
/// Throws Error if the verdict names the code; what returns the state is left to the caller. False: the call is to
/// succeed without effect.
bool permits(Call call, Stage stage, const char* function);
/// "has been finalized" ...: to be put behind "the communicator".
const char* explain(Stage stage);

}  // namespace nitinol
