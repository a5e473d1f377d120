#include "bootstrap/end_of_process.h"

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "base/fork_safe.h"
#include "bootstrap/fork_guard.h"

namespace nitinol {

namespace {

/// Of the parent of a forked child both differ; the process's number alone, if the fork ran no handlers.
struct Origin {
  pid_t process = getpid();
  int forks = count_forks();
  bool operator==(const Origin&) const = default;
};

struct Listeners {
  std::mutex mutex;
  Origin origin;
  std::vector<std::weak_ptr<EndOfProcess>> all;
};

std::atomic<Listeners*> listeners{nullptr};  // outlives static destruction
std::once_flag made;

// Not std::atexit: objects of the program that are destroyed behind what that calls may still leave properly.
__attribute__((destructor)) void tell_all() {
  Listeners* const known = listeners;
  if (known == nullptr || known->origin != Origin()) return;
  // Not waited for: exit() may come out of a signal's handler, above the very thread that holds it.
  const std::unique_lock lock(known->mutex, std::try_to_lock);
  if (!lock) return;
  for (const auto& one : known->all) {
    if (const auto listener = one.lock()) listener->on_end_of_process();
  }
}

}  // namespace

void tell_of_end_of_process(const std::shared_ptr<EndOfProcess>& listener) {
  std::call_once(made, [] { listeners = &make_free_across_forks<Listeners>(); });
  Listeners& known = *listeners;
  const std::lock_guard lock(known.mutex);
  if (const Origin origin; known.origin != origin) {
    known.origin = origin;
    known.all.clear();
  }
  std::erase_if(known.all, [](const auto& one) { return one.expired(); });
  known.all.push_back(listener);
}

}  // namespace nitinol
