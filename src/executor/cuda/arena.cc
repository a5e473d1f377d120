#include "executor/cuda/arena.h"

#include <chrono>
#include <condition_variable>
#include <map>

#include "base/error.h"
#include "device/guards.h"

namespace nitinol::cuda {

namespace {

struct Directory {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<ArenaName, std::weak_ptr<Arena>> arenas;
};

Directory& directory() {
  static Directory* const one = new Directory;  // lives as long as any thread may
  return *one;
}

}  // namespace

std::shared_ptr<p2p::Region> Arena::region(Queue queue) {
  const auto index = static_cast<size_t>(queue);
  const std::lock_guard lock(mutex_);
  if (regions_[index] == nullptr) {
    const RelaxedCaptureGuard relaxed;
    regions_[index] = p2p::allocate(place_, device_, layouts_[index].bytes(), devices_);
  }
  return regions_[index];
}

void register_arena(const ArenaName& name, const std::shared_ptr<Arena>& arena) {
  Directory& all = directory();
  const std::lock_guard lock(all.mutex);
  all.arenas[name] = arena;
  all.changed.notify_all();
}

void unregister_arena(const ArenaName& name) {
  Directory& all = directory();
  const std::lock_guard lock(all.mutex);
  all.arenas.erase(name);
}

std::shared_ptr<Arena> find_arena(const ArenaName& name) {
  Directory& all = directory();
  std::unique_lock lock(all.mutex);
  std::shared_ptr<Arena> found;
  const bool there = all.changed.wait_for(lock, std::chrono::minutes(1), [&] {
    const auto entry = all.arenas.find(name);
    if (entry != all.arenas.end()) found = entry->second.lock();
    return found != nullptr;
  });
  if (!there) {
    fail(ncclSystemError, "rank {}, a rank of this process, did not set up its communication memory within a minute",
         name.second);
  }
  return found;
}

}  // namespace nitinol::cuda
