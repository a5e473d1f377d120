#include "base/fork_safe.h"

#include <pthread.h>

#include <vector>

namespace nitinol {
namespace {

struct Kept {
  std::mutex mutex;  ///< one of them
  std::vector<std::mutex*> others;
};

Kept& kept() {
  static Kept* const instance = new Kept;
  return *instance;
}

void lock_all() {
  kept().mutex.lock();
  for (std::mutex* const each : kept().others) each->lock();
}

void unlock_all() {
  for (std::mutex* const each : kept().others) each->unlock();
  kept().mutex.unlock();
}

}  // namespace

void keep_free_across_forks(std::mutex& mutex) {
  const std::lock_guard lock(kept().mutex);
  kept().others.push_back(&mutex);
  if (kept().others.size() == 1) pthread_atfork(lock_all, unlock_all, unlock_all);
}

}  // namespace nitinol
