// Which kernel carries out an operation, or messages, on this rank: ranks need not have the same, as that depends on
// where buffers begin and end.
#pragma once

#include "executor/cuda/layout.h"
#include "executor/cuda/message_plan.h"
#include "model/plan.h"

namespace nitinol::cuda {

/// How many steps each connection carries if the operation is brief (brief_connections.h); 0: it never is.
uint32_t steps_if_brief(const CollectiveWork& work);

/// The kernel of a collective of `ranks` ranks that goes by a queue set. Throws Error(ncclInvalidUsage) if the build
/// leaves its type or reduction out.
const void* kernel_of(const CollectiveWork& work, Queue queue, int ranks);

/// The kernel of messages. `size`, `in_rows`: as in MessageKernels.
const void* message_kernel_of(const MessageBatch& batch, size_t size, Protocol protocol, bool in_rows);

}  // namespace nitinol::cuda
