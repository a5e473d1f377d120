// What the end of a group does with the operations in it: it puts them into their streams.
#pragma once

#include <span>

#include "comm/batch.h"
#include "nccl.h"

namespace nitinol {

/// Either at once, or for non-blocking communicators, if something has to be waited for, in the background: then
/// ncclInProgress is returned. `memory` is used for what most groups need. Throws Error.
ncclResult_t carry_out(std::span<const Task> tasks, Batch& memory);

}  // namespace nitinol
