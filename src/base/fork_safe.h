// Mutexes that forks wait for. A child has its parent's memory as it was in the moment of the fork, but only the thread
// that forked: what another thread had locked then stays locked in the child for ever.
#pragma once

#include <memory>
#include <mutex>

namespace nitinol {

/// From now on a forked child finds the mutex free. It is never destroyed, and whoever holds it takes no other such.
void keep_free_across_forks(std::mutex& mutex);

/// A new Owner, whose member `mutex` is kept so. It outlives static destruction: programs hold what it gives, and use
/// it late.
template <class Owner>
Owner& make_free_across_forks() {
  auto made = std::make_unique<Owner>();
  keep_free_across_forks(made->mutex);
  return *made.release();
}

}  // namespace nitinol
