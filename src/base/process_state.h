// What the system says about a process of this host.
#pragma once

namespace nitinol {

enum class ProcessState { kRunning, kStopped, kDead, kUnknown };

/// Of a process that this one can see: one of another container is taken for dead.
ProcessState process_state(int pid);

/// "its process is stopped (SIGSTOP, or a debugger)" ...
const char* words_for(ProcessState state);

}  // namespace nitinol
