// Heap: hands out pieces of large sparse memory files ("arenas"), which cost nothing until they are touched.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "vgpu/memory.h"

namespace nitinol::vgpu {

class Heap {
 public:
  // A piece of at least so many bytes, aligned to 256 bytes, or to a page if it is as large as that.
  std::optional<Extent> allocate(size_t size);

  // The memory goes back to the system where it covers whole pages, and is overwritten where it does not.
  void free(const Extent& extent) noexcept;

  // Whether the file of that name is one of its arenas.
  bool has(uint64_t tag);

 private:
  struct Arena {
    int fd;
    uint64_t tag;
    uintptr_t base;
    size_t size;
  };

  std::optional<uintptr_t> take(size_t size, size_t alignment);
  bool add_arena(size_t at_least);
  void insert(uintptr_t base, size_t size);
  void erase(uintptr_t base, size_t size);
  const Arena& arena_of(uintptr_t address) const;

  std::mutex mutex_;
  std::vector<Arena> arenas_;
  std::map<uintptr_t, size_t> free_;                   // by address
  std::set<std::pair<size_t, uintptr_t>> free_sizes_;  // the same by size
};

}  // namespace nitinol::vgpu
