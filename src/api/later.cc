// Functions that NCCL has got after 2.28, the version whose interface this is. Programs that are built for them,
// PyTorch from 2.12 on among them, need their names to load at all; whoever calls one is told that it is not built.
// What they take does not matter to that.
#include "api/entry.h"

using namespace nitinol;

namespace {

ncclResult_t not_built(const char* function) {
  return at_once(nullptr, [&]() -> ncclResult_t {
    fail(ncclInvalidUsage,
         "{} is of a later version of NCCL: this library has the interface of NCCL {}.{}.{} (ncclGetVersion)", function,
         NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
  });
}

}  // namespace

#define NITINOL_LATER(name) \
  NITINOL_ENTRY(ncclResult_t, name, ()) { return not_built(#name); }

NITINOL_LATER(ncclCommGrow)
NITINOL_LATER(ncclCommGetUniqueId)
NITINOL_LATER(ncclCommSuspend)
NITINOL_LATER(ncclCommResume)
NITINOL_LATER(ncclCommMemStats)
NITINOL_LATER(ncclCommQueryProperties)
NITINOL_LATER(ncclPutSignal)
NITINOL_LATER(ncclSignal)
NITINOL_LATER(ncclWaitSignal)
NITINOL_LATER(ncclGetLsaDevicePointer)
NITINOL_LATER(ncclGetLsaMultimemDevicePointer)
NITINOL_LATER(ncclGetMultimemDevicePointer)
NITINOL_LATER(ncclGetPeerDevicePointer)
NITINOL_LATER(ncclWinGetUserPtr)
