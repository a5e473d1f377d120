#include "executor/cpu/directory.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>

#include "base/error.h"

namespace nitinol::cpu {

namespace {

struct Directory {
  std::mutex mutex;
  std::condition_variable changed;
  /// Those that have been removed stay, empty, as long as there are others of their communicator.
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
  const auto begin = all.arenas.lower_bound({name.identity, 0});
  auto end = begin;
  bool is_needed = false;
  for (; end != all.arenas.end() && end->first.identity == name.identity; ++end) {
    if (end->first.rank == name.rank) end->second.reset();
    is_needed = is_needed || !end->second.expired();
  }
  if (!is_needed) all.arenas.erase(begin, end);
  all.changed.notify_all();
}

std::shared_ptr<Arena> find_arena(const RankName& name, std::chrono::steady_clock::time_point deadline,
                                  const std::function<bool()>& given_up) {
  constexpr std::chrono::milliseconds kSlice{100};
  Directory& all = directory();
  std::unique_lock lock(all.mutex);
  std::shared_ptr<Arena> found;
  while (true) {
    const auto entry = all.arenas.find(name);
    if (entry != all.arenas.end()) {
      found = entry->second.lock();
      if (!found) fail(ncclRemoteError, "rank {} of this process has left the communicator", name.rank);
    }
    const auto now = std::chrono::steady_clock::now();
    if (found || now >= deadline) break;
    if (given_up()) fail(ncclRemoteError, "the communicator was stopped while it looked for rank {}", name.rank);
    all.changed.wait_until(lock, std::min(deadline, now + kSlice));
  }
  if (!found) {
    fail(ncclSystemError, "rank {} of this process has no memory for messages: is its communicator already destroyed?",
         name.rank);
  }
  return found;
}

}  // namespace nitinol::cpu
