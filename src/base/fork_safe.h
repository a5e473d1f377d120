// Mutexes that forks wait for. A child has its parent's memory as it was in the moment of the fork, but only the thread
// that forked: what another thread had locked then stays locked in the child for ever.
#pragma once

#include <mutex>

namespace nitinol {

/// From now on a forked child finds the mutex free. It is never destroyed, and whoever holds it takes no other such.
void keep_free_across_forks(std::mutex& mutex);

}  // namespace nitinol
