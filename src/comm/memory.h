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

}  // namespace nitinol
