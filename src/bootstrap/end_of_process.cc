#include "bootstrap/end_of_process.h"

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/fork_safe.h"
#include "bootstrap/fork_guard.h"

namespace nitinol {

namespace {

struct Listeners {
  std::mutex mutex;
  int forks = count_forks();
  std::vector<std::weak_ptr<EndOfProcess>> all;
};

Listeners* listeners = nullptr;  // outlives static destruction
std::once_flag made;

// Not std::atexit: objects of the program that are destroyed behind what that calls may still leave properly.
__attribute__((destructor)) void tell_all() {
  if (listeners == nullptr || listeners->forks != forks_counted()) return;
  const std::lock_guard lock(listeners->mutex);
  for (const auto& one : listeners->all) {
    if (const auto listener = one.lock()) listener->on_end_of_process();
  }
}

}  // namespace

void tell_of_end_of_process(const std::shared_ptr<EndOfProcess>& listener) {
  std::call_once(made, [] { listeners = &make_free_across_forks<Listeners>(); });
  const std::lock_guard lock(listeners->mutex);
  if (const int forks = count_forks(); std::exchange(listeners->forks, forks) != forks) listeners->all.clear();
  std::erase_if(listeners->all, [](const auto& one) { return one.expired(); });
  listeners->all.push_back(listener);
}

}  // namespace nitinol
