#include "bootstrap/end_of_process.h"

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "base/fork_safe.h"
#include "bootstrap/fork_guard.h"

namespace nitinol {

namespace {

/// A process, and how many forks lie behind it: of forks that nobody is told of the number alone tells.
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
  const std::lock_guard lock(known->mutex);
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
