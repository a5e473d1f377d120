// NITINOL_CHECK=strict: calls are compared before they are put into streams: collectives among all ranks, sends and
// receives between their two ends.
#pragma once

#include <span>

#include "comm/batch.h"

namespace nitinol {

/// Whether the settings ask for it.
bool checks_strictly();

/// Whether calls are compared at all, while they run (NITINOL_CHECK is not off).
bool compares_calls();

/// Whether calls on the communicator are compared.
bool checks_strictly(const Communicator& communicator);

/// Compares what is called on each communicator that compares calls, for all at the same time: waits for other ranks.
/// Throws Error(ncclInvalidUsage) with the calls that differ; the communicator has then failed.
void compare_calls(std::span<const Batch> batches);

}  // namespace nitinol
