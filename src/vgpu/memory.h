// Memory of virtual GPUs: allocations cut from large sparse memory files, and the record of every pointer that the
// runtime knows (allocated, registered, or opened from another process).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "driver_types.h"

namespace nitinol::vgpu {

class Heap;

// Where an allocation lies in a memory file.
struct Extent {
  uintptr_t base = 0;
  size_t size = 0;
  int fd = -1;
  size_t offset = 0;
  uint64_t tag = 0;  // names the file: part of its name in /proc, so that a stale handle is noticed
};

enum class Origin { kAllocated, kRegistered, kImported };

// Who gives allocated memory back. What a captured allocation makes is one place for all launches of its graph, which
// keeps it while it is freed, too.
enum class Keeper {
  kProgram,
  kGraphIdle,  // a graph, which has not allocated it, or not since it was freed
  kGraphLive,  // a graph, which has
  kGone,       // it is allocated, but its graph is gone: who frees it gives it back
};

struct Allocation {
  Extent extent;
  size_t size = 0;  // as asked for
  Origin origin = Origin::kAllocated;
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  int device = cudaInvalidDeviceId;
  unsigned flags = 0;
  Heap* heap = nullptr;
  Keeper keeper = Keeper::kProgram;

  bool contains(const void* pointer, size_t count) const {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    return address >= extent.base && count <= size && address - extent.base <= size - count;
  }
};

// How much memory each device claims to have.
size_t device_memory_total();
size_t device_memory_free(int device);

// Returns null if there is no memory.
void* allocate(size_t size, cudaMemoryType type, int device, unsigned flags, Keeper keeper = Keeper::kProgram);

// Frees an allocation of one of the two types that begins at the pointer; false if there is none.
bool release(void* pointer, cudaMemoryType type, cudaMemoryType other_type);

// For a graph: it allocates its memory (again), frees some that a graph has allocated, and ends.
void allocate_in_graph(void* pointer);
void free_in_graph(void* pointer);
void leave_graph(void* pointer);

// Whether the memory file of that name was made here.
bool is_own_file(uint64_t tag);

// The known memory that holds the pointer. (A pointer just past the end belongs to nothing.)
std::optional<Allocation> find_allocation(const void* pointer);

// Adds memory that was not allocated here; false if part of it is known already.
bool add_known(const Allocation& allocation);
// Forgets memory of an origin that begins at the pointer and returns it.
std::optional<Allocation> remove_known(const void* pointer, Origin origin);

// Frees all that is allocated on the device, for cudaDeviceReset. Graphs keep theirs.
void release_all(int device);

}  // namespace nitinol::vgpu
