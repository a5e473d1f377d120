// How long a group's operations would take: ncclGroupSimulateEnd.
#pragma once

#include <span>

#include "comm/batch.h"

namespace nitinol {

/// Microseconds, if all ranks came to the group at the same time. Different communicators of one GPU come one after the
/// other, those of several GPUs at the same time. Throws Error if a communicator has been ended since the call, or a
/// message to oneself lacks its match. Communicators stay as they are.
double estimate(std::span<const Task> tasks);

}  // namespace nitinol
