// See heap.h.
#include "vgpu/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>

#include "vgpu/memory_file.h"

namespace nitinol::vgpu {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGranule = 256;
constexpr size_t kReturnToSystem = 64 * 1024;  // smaller pieces are cheaper to overwrite than to fault in anew
constexpr int kFreed = 0xDB;
constexpr size_t kMiB = size_t{1} << 20;

constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// In a program that locks its memory (mlockall), too, pages come as they are used: all of them could be more than there
// is. What nobody may access is not filled when it is mapped, and is unlocked before that changes.
void* map_untouched(int fd, size_t size) {
  void* const base = mmap(nullptr, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) return base;
  munlock(base, size);
  if (mprotect(base, size, PROT_READ | PROT_WRITE) == 0) return base;
  munmap(base, size);
  return MAP_FAILED;
}

void wipe(const Extent& extent) {
  auto* base = reinterpret_cast<char*>(extent.base);
  if (extent.size < kReturnToSystem) {
    std::memset(base, kFreed, extent.size);
    return;
  }
  // Pieces of this size begin and end on page boundaries.
  const auto offset = static_cast<off_t>(extent.offset);
  if (fallocate(extent.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, static_cast<off_t>(extent.size)) != 0) {
    std::memset(base, kFreed, extent.size);
  }
}

size_t rounded(size_t size) { return round_up(size, size >= kPage ? kPage : kGranule); }

}  // namespace

std::optional<Extent> Heap::allocate(size_t size) {
  const size_t needed = rounded(size);
  if (needed < size) return std::nullopt;
  const size_t alignment = needed >= kPage ? kPage : kGranule;
  std::lock_guard lock(mutex_);
  std::optional<uintptr_t> base = take(needed, alignment);
  if (!base && add_arena(needed)) base = take(needed, alignment);
  if (!base) return std::nullopt;
  const Arena& arena = arena_of(*base);
  return Extent{*base, needed, arena.fd, *base - arena.base, arena.tag};
}

void Heap::free(const Extent& extent) noexcept {
  wipe(extent);
  std::lock_guard lock(mutex_);
  try {
    insert(extent.base, extent.size);
  } catch (const std::bad_alloc&) {  // it is not handed out again
  }
}

bool Heap::has(uint64_t tag) {
  std::lock_guard lock(mutex_);
  return std::any_of(arenas_.begin(), arenas_.end(), [&](const Arena& arena) { return arena.tag == tag; });
}

// Best fit; what is left before and after stays free.
std::optional<uintptr_t> Heap::take(size_t size, size_t alignment) {
  for (auto piece = free_sizes_.lower_bound({size, 0}); piece != free_sizes_.end(); ++piece) {
    const auto [piece_size, piece_base] = *piece;
    const uintptr_t base = round_up(piece_base, alignment);
    const size_t before = base - piece_base;
    if (before + size > piece_size) continue;
    erase(piece_base, piece_size);
    if (before > 0) insert(piece_base, before);
    if (piece_size - before > size) insert(base + size, piece_size - before - size);
    return base;
  }
  return std::nullopt;
}

bool Heap::add_arena(size_t at_least) {
  uint64_t tag = 0;
  if (getrandom(&tag, sizeof tag, 0) != sizeof tag) return false;
  char name[64];
  std::snprintf(name, sizeof name, "nitinol-vgpu-%016llx", static_cast<unsigned long long>(tag));
  const int fd = make_memory_file(name);
  if (fd < 0) return false;
  // Address space may be limited, and so may files: be content with less.
  for (const size_t wish : {size_t{16} << 30, size_t{1} << 30, size_t{64} << 20, size_t{1}}) {
    const size_t size = std::max(wish, round_up(at_least, kMiB));
    if (!set_size(fd, size)) continue;
    void* base = map_untouched(fd, size);
    if (base == MAP_FAILED) continue;
    madvise(base, size, MADV_DONTDUMP);
    arenas_.push_back({fd, tag, reinterpret_cast<uintptr_t>(base), size});
    insert(reinterpret_cast<uintptr_t>(base), size);
    return true;
  }
  close(fd);
  return false;
}

// Joins the piece with its free neighbours. Arenas that happen to touch stay apart: they are different files.
void Heap::insert(uintptr_t base, size_t size) {
  const Arena& arena = arena_of(base);
  auto next = free_.lower_bound(base);
  if (next != free_.end() && next->first == base + size && next->first < arena.base + arena.size) {
    const size_t next_size = next->second;
    erase(base + size, next_size);
    size += next_size;
  }
  auto after = free_.lower_bound(base);
  if (after != free_.begin()) {
    const auto [previous_base, previous_size] = *std::prev(after);
    if (previous_base + previous_size == base && previous_base >= arena.base) {
      erase(previous_base, previous_size);
      base = previous_base;
      size += previous_size;
    }
  }
  free_sizes_.emplace(size, base);
  try {
    free_.emplace(base, size);
  } catch (const std::bad_alloc&) {
    free_sizes_.erase({size, base});
    throw;
  }
}

void Heap::erase(uintptr_t base, size_t size) {
  free_.erase(base);
  free_sizes_.erase({size, base});
}

const Heap::Arena& Heap::arena_of(uintptr_t address) const {
  return *std::find_if(arenas_.begin(), arenas_.end(),
                       [&](const Arena& arena) { return address >= arena.base && address - arena.base < arena.size; });
}

}  // namespace nitinol::vgpu
