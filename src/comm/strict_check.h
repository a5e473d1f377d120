// NITINOL_CHECK=strict: calls are compared before they are put into streams: collectives among all ranks, sends and
// receives between their two ends.
#pragma once

#include <span>

#include "comm/communicator.h"
#include "comm/group.h"

namespace nitinol {

/// Whether the settings ask for it.
bool checks_strictly();

/// Compares `tasks`, for all communicators at the same time. Throws Error(ncclInvalidUsage) with the calls that differ;
/// the communicator has then failed.
void compare_calls(std::span<const Task> tasks);

}  // namespace nitinol
