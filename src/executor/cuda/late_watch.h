// Looks now and then, on one thread for all communicators of the process, whether something happened that kernels could
// only leave a note of. The thread runs only while somebody is watched.
#pragma once

#include <cstdint>
#include <functional>

namespace nitinol::cuda {

/// `look` is called every few hundredths of a second until watching ends. What it throws is lost.
uint64_t start_watching(std::function<void()> look);

/// Looks at everything that is watched as soon as the thread comes to it.
void look_soon();

/// Afterwards `look` is not running and is not called again. Not from within it, nor under a lock that it takes.
void stop_watching(uint64_t id);

}  // namespace nitinol::cuda
