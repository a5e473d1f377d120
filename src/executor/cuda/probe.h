// Finds out whether peers' memory that is said to be reachable really is.
#pragma once

namespace nitinol::cuda {

/// A kernel(QueueView, uint32_t* answers) for one CTA with a thread per rank: writes a pattern into each rank's region
/// and reads it back; `answers` (host memory, an entry per rank) becomes 1 where it was found.
const void* probe_kernel();

}  // namespace nitinol::cuda
