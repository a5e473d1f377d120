// How communicators end. All ranks of a communicator leave together, but one thread may own several and end them one
// after the other: so the ranks of a process gather, and the last one waits for the other processes on behalf of all.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/communicator.h"

namespace nitinol {

/// Where the ranks of this process that leave one communicator gather. Each joins it while the communicator is made, so
/// that leaving takes no memory.
std::shared_ptr<Gathering> join_gathering(const KeyId& identity, std::ptrdiff_t local_ranks);

/// Flushes this rank's work. The last rank of the process to come also waits until all ranks of the communicator have
/// come. Throws Error.
void finalise(const std::shared_ptr<Communicator>& communicator);

/// Finalises unless that was done, then frees everything. After a failure nobody is waited for. Never throws for what
/// other ranks did.
void destroy(const std::shared_ptr<Communicator>& communicator);

/// Stops everything and frees it, without waiting for anybody.
void abort(const std::shared_ptr<Communicator>& communicator);

}  // namespace nitinol
