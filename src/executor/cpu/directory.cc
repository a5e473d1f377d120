#include "executor/cpu/directory.h"

#include <condition_variable>
#include <map>
#include <mutex>

#include "base/error.h"

namespace nitinol::cpu {

namespace {

struct Directory {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<RankName, std::weak_ptr<Arena>> arenas;
};

/// Never destroyed: executors may go away while the process exits.
Directory& directory() {
  static auto* const the_one = new Directory;
  return *the_one;
}

}  // namespace

void enter_arena(const RankName& name, const std::shared_ptr<Arena>& arena) {
  Directory& all = directory();
  const std::lock_guard lock(all.mutex);
  all.arenas[name] = arena;
  all.changed.notify_all();
}

void remove_arena(const RankName& name) {
  Directory& all = directory();
  const std::lock_guard lock(all.mutex);
  all.arenas.erase(name);
}

std::shared_ptr<Arena> find_arena(const RankName& name, std::chrono::steady_clock::time_point deadline) {
  Directory& all = directory();
  std::unique_lock lock(all.mutex);
  std::shared_ptr<Arena> found;
  const bool there = all.changed.wait_until(lock, deadline, [&] {
    const auto entry = all.arenas.find(name);
    if (entry != all.arenas.end()) found = entry->second.lock();
    return found != nullptr;
  });
  if (!there) {
    fail(ncclSystemError, "rank {} of this process has no memory for messages: is its communicator already destroyed?",
         name.rank);
  }
  return found;
}

}  // namespace nitinol::cpu
