// What the system says about a process of this host.
#pragma once

#include <cstdint>

namespace nitinol {

/// Names the PID namespace of this process, within which numbers of processes mean something: containers on one host
/// may have one each. 0: unknown.
std::uint64_t pid_namespace();

/// Of a number that was drawn in this process, or in one that it was forked from: one that no other living process has
/// which that holds for.
std::uint64_t of_this_process(std::uint64_t drawn);

enum class ProcessState { kRunning, kStopped, kDead, kUnknown };

/// Of the process with that number in that namespace; unknown if that is not the own one.
ProcessState process_state(int pid, std::uint64_t in_namespace);

/// "its process is stopped (SIGSTOP, or a debugger)" ...
const char* words_for(ProcessState state);

}  // namespace nitinol
