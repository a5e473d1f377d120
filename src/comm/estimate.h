// How long a group's operations would take: ncclGroupSimulateEnd.
#pragma once

#include <span>

#include "comm/batch.h"

namespace nitinol {

/// Microseconds. Communicators of one GPU come one after the other, those of several GPUs at the same time. Throws
/// Error if the group could not be carried out.
double estimate(std::span<const Task> tasks);

}  // namespace nitinol
