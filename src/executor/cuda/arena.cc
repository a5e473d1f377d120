#include "executor/cuda/arena.h"

#include <map>

#include "base/error.h"
#include "device/guards.h"

namespace nitinol::cuda {

namespace {

struct Directory {
  std::mutex mutex;
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
}

void unregister_arena(const ArenaName& name) {
  Directory& all = directory();
  const std::lock_guard lock(all.mutex);
  all.arenas.erase(name);
}

std::shared_ptr<Arena> find_arena(const ArenaName& name) {
  Directory& all = directory();
  const std::lock_guard lock(all.mutex);
  const auto entry = all.arenas.find(name);
  std::shared_ptr<Arena> found = entry != all.arenas.end() ? entry->second.lock() : nullptr;
  if (found == nullptr) {
    fail(ncclRemoteError, "cannot reach the memory of rank {}, a rank of this process: it has left the communicator",
         name.second);
  }
  return found;
}

}  // namespace nitinol::cuda
