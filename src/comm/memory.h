// Memory for communication buffers, and the registrations of the user's own.
#pragma once

#include <cstddef>

#include "nccl.h"

namespace nitinol {

/// On the current device. Throws Error.
void* allocate(size_t bytes);
void release(void* pointer);

/// Remembers the range; operations are as fast without. Throws Error(ncclInvalidArgument) for NULL or an empty range.
void* register_buffer(ncclComm_t communicator, void* buffer, size_t bytes);
/// Throws Error(ncclInvalidUsage) for a handle that register_buffer did not return for this communicator.
void deregister_buffer(ncclComm_t communicator, void* handle);

/// This rank's part of a window; NULL with NCCL_WIN_ENABLE=0. Operations on it go as on any memory, and nothing of it
/// can be reached from device code or by one-sided calls, which refuse. Throws Error(ncclInvalidArgument) for NULL, an
/// empty or misaligned range, or unknown flags.
ncclWindow_t register_window(ncclComm_t communicator, void* buffer, size_t bytes, int flags);
/// Throws Error(ncclInvalidArgument) for what is not a window of this communicator; NULL is none, and right.
void deregister_window(ncclComm_t communicator, ncclWindow_t window);

}  // namespace nitinol
