// See memory.h.
#include "vgpu/memory.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "vgpu/heap.h"
#include "vgpu/runtime.h"

namespace nitinol::vgpu {
namespace {

// Several heaps, so that threads of different devices seldom meet; not one a device, for each costs a file descriptor.
constexpr size_t kHeaps = 8;

struct Memory {
  std::array<Heap, kHeaps> heaps;
  std::shared_mutex mutex;
  std::map<uintptr_t, Allocation> known;  // by base
};

Memory& memory() {
  static Memory* const instance = new Memory;
  return *instance;
}

std::atomic<size_t>& allocated_on(int device) { return device_at(device).allocated; }

// The first entry that does not end before the address.
std::map<uintptr_t, Allocation>::iterator first_reaching(uintptr_t address) {
  Memory& m = memory();
  auto found = m.known.upper_bound(address);
  if (found != m.known.begin()) {
    const Allocation& previous = std::prev(found)->second;
    if (address - previous.extent.base < previous.size) --found;
  }
  return found;
}

// The allocation that begins at the pointer, or the end.
std::map<uintptr_t, Allocation>::iterator allocated_at(const void* pointer) {
  Memory& m = memory();
  const auto found = m.known.find(reinterpret_cast<uintptr_t>(pointer));
  return found != m.known.end() && found->second.origin == Origin::kAllocated ? found : m.known.end();
}

bool of_a_graph(const Allocation& allocation) {
  return allocation.keeper == Keeper::kGraphIdle || allocation.keeper == Keeper::kGraphLive;
}

void give_back(const Allocation& allocation) {
  allocation.heap->free(allocation.extent);
  if (allocation.type != cudaMemoryTypeHost) allocated_on(allocation.device) -= allocation.extent.size;
}

}  // namespace

size_t device_memory_total() {
  static const size_t total = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return total;
}

size_t device_memory_free(int device) {
  const size_t used = allocated_on(device);
  return used < device_memory_total() ? device_memory_total() - used : 0;
}

void* allocate(size_t size, cudaMemoryType type, int device, unsigned flags, Keeper keeper) {
  if (size > (type == cudaMemoryTypeHost ? device_memory_total() : device_memory_free(device))) return nullptr;
  Memory& m = memory();
  Heap& heap = m.heaps[static_cast<size_t>(device) % kHeaps];
  const std::optional<Extent> extent = heap.allocate(size);
  if (!extent) return nullptr;
  const Allocation allocation{*extent, size, Origin::kAllocated, type, device, flags, &heap, keeper};
  if (type != cudaMemoryTypeHost) allocated_on(device) += extent->size;
  try {
    std::lock_guard lock(m.mutex);
    m.known[extent->base] = allocation;
  } catch (const std::bad_alloc&) {
    give_back(allocation);
    throw;
  }
  return reinterpret_cast<void*>(extent->base);
}

bool release(void* pointer, cudaMemoryType type, cudaMemoryType other_type) {
  Memory& m = memory();
  Allocation allocation;
  {
    std::lock_guard lock(m.mutex);
    auto found = allocated_at(pointer);
    if (found == m.known.end()) return false;
    allocation = found->second;
    if (allocation.type != type && allocation.type != other_type) return false;
    if (of_a_graph(allocation)) {
      return std::exchange(found->second.keeper, Keeper::kGraphIdle) == Keeper::kGraphLive;
    }
    m.known.erase(found);
  }
  give_back(allocation);
  return true;
}

void allocate_in_graph(void* pointer) {
  std::lock_guard lock(memory().mutex);
  allocated_at(pointer)->second.keeper = Keeper::kGraphLive;
}

// A graph that frees another one's memory may be launched when that is the program's, allocated anew.
void free_in_graph(void* pointer) {
  const std::optional<Allocation> allocation = find_allocation(pointer);
  if (!allocation || allocation->keeper == Keeper::kProgram) return;
  release(pointer, cudaMemoryTypeDevice, cudaMemoryTypeDevice);
}

void leave_graph(void* pointer) {
  Memory& m = memory();
  Allocation allocation;
  {
    std::lock_guard lock(m.mutex);
    const auto found = allocated_at(pointer);
    if (found->second.keeper == Keeper::kGraphLive) {
      found->second.keeper = Keeper::kGone;
      return;
    }
    allocation = found->second;
    m.known.erase(found);
  }
  give_back(allocation);
}

bool is_own_file(uint64_t tag) {
  auto& heaps = memory().heaps;
  return std::any_of(heaps.begin(), heaps.end(), [&](Heap& heap) { return heap.has(tag); });
}

std::optional<Allocation> find_allocation(const void* pointer) {
  Memory& m = memory();
  std::shared_lock lock(m.mutex);
  auto found = first_reaching(reinterpret_cast<uintptr_t>(pointer));
  if (found == m.known.end() || !found->second.contains(pointer, 1)) return std::nullopt;
  return found->second;
}

bool add_known(const Allocation& allocation) {
  Memory& m = memory();
  std::lock_guard lock(m.mutex);
  auto next = first_reaching(allocation.extent.base);
  if (next != m.known.end() && next->first < allocation.extent.base + allocation.size) return false;
  m.known.emplace(allocation.extent.base, allocation);
  return true;
}

std::optional<Allocation> remove_known(const void* pointer, Origin origin) {
  Memory& m = memory();
  std::lock_guard lock(m.mutex);
  auto found = m.known.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == m.known.end() || found->second.origin != origin) return std::nullopt;
  Allocation allocation = found->second;
  m.known.erase(found);
  return allocation;
}

void release_all(int device) {
  Memory& m = memory();
  std::vector<Allocation> gone;
  {
    std::lock_guard lock(m.mutex);
    for (auto entry = m.known.begin(); entry != m.known.end();) {
      const auto here = entry++;
      Allocation& allocation = here->second;
      if (allocation.device != device || allocation.origin == Origin::kImported) continue;
      if (allocation.origin == Origin::kRegistered) {
        m.known.erase(here);
      } else if (of_a_graph(allocation)) {
        allocation.keeper = Keeper::kGraphIdle;
      } else {
        gone.push_back(allocation);
        m.known.erase(here);
      }
    }
  }
  for (const Allocation& allocation : gone) give_back(allocation);
}

}  // namespace nitinol::vgpu
