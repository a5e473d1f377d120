// What a rank that waits for long can find out about the others: from their records, and from the system.
#pragma once

#include <string>

#include "executor/call_words.h"
#include "executor/cpu/arena.h"
#include "executor/executor.h"

namespace nitinol::cpu {

/// "rank 3 (host h, pid 17, device 2)".
std::string describe(int rank, const Arena& arena);

/// What the arena's owner does; its process is not looked at.
Doings look_at(const Arena& arena);
/// "rank 3 (...): stopped (SIGSTOP or a debugger); its last operation was AllReduce number 5 (...), which it has
/// finished".
std::string describe_doings(int rank, const Arena& arena, bool same_process);

/// How far the owner's launches have come: nothing of their numbers once some are in graphs.
Executor::Passed passed_of(const Arena& arena, int ranks);

}  // namespace nitinol::cpu
