// After a failure: operations are stopped while everything stays, so that ranks can agree on how to go on.
#pragma once

#include "nccl.h"

namespace nitinol {

/// Stops what runs; then only splitting, shrinking, destroying and aborting are left. Throws Error.
void revoke(ncclComm_t handle, int flags);

}  // namespace nitinol
