// Keeps what captured launches need alive as long as somebody may run them: the graph and everything instantiated from
// it may outlive the communicator.
#pragma once

#include <cuda_runtime.h>

#include <memory>

namespace nitinol {

/// `what` lives until the graph into which `stream` is captured, and every instance of it, are gone. Throws Error.
void keep_with_graph(cudaStream_t stream, std::shared_ptr<void> what);

/// Lets go of what belonged to graphs that are gone. CUDA forbids that in the moment when they go.
void let_go_of_gone_graphs();

/// Of a kernel that does not leave: `what` is never let go of.
void keep_for_good(std::shared_ptr<void> what);

}  // namespace nitinol
