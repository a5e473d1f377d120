// NITINOL_CHECK=strict: collective calls are compared among all ranks before they are put into streams.
#pragma once

#include <span>

#include "comm/communicator.h"
#include "comm/group.h"

namespace nitinol {

/// Whether the settings ask for it.
bool checks_strictly();

/// Compares the collectives among `tasks`, for all communicators at the same time. Throws Error(ncclInvalidUsage) with
/// the calls that differ; the communicator has then failed.
void compare_calls(std::span<const Task> tasks);

}  // namespace nitinol
