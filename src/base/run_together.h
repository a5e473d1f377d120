// Runs what must run at the same time, because its parts wait for each other.
#pragma once

#include <cstddef>
#include <functional>

namespace nitinol {

/// Calls body(0) ... body(count - 1), each on a thread of its own but for the first, which the calling thread runs;
/// returns when all have returned. Throws Error, with none of them called, if the system has not so many threads.
/// `body` must not throw.
void run_together(std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace nitinol
