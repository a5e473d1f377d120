// Starting the tool's own processes.
#pragma once

namespace nitinol::perf {

/// Starts `processes` copies of this program, connected by sockets, and waits for them. Ends the rest when one fails.
/// Returns the exit code for the whole. Must be called before CUDA is touched.
int launch_processes(int processes, int argc, char** argv);

}  // namespace nitinol::perf
