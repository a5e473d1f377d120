#include "executor/cpu/arena.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/error.h"

namespace nitinol::cpu {

namespace {

constexpr uint64_t kMagic = 0x6e6974696e6f6c41;  // "nitinolA"
constexpr uint32_t kVersion = 10;
constexpr size_t kPage = 4096;
constexpr size_t kLeastSlotBytes = 4096;
/// What the slots of one rank may take together: about what stays in a processor's own cache.
constexpr std::array<size_t, kLanes> kBudget{3 << 19, 3 << 18};
constexpr std::array<size_t, kLanes> kMostSlotBytes{256 << 10, 128 << 10};
constexpr size_t kMostWishedSlotBytes = 16 << 20;

constexpr size_t up_to(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }
constexpr size_t kHeaderBytes = up_to(sizeof(ArenaHeader), kPage);

}  // namespace

Geometry Geometry::of(int ranks, size_t buffer_bytes) {
  Geometry geometry{.ranks = ranks};
  const auto peers = static_cast<size_t>(std::max(ranks - 1, 1));
  for (int lane = 0; lane < kLanes; ++lane) {
    size_t bytes = std::bit_floor(kBudget[lane] / (peers * kSlots));
    bytes = std::clamp(bytes, kLeastSlotBytes, kMostSlotBytes[lane]);
    if (buffer_bytes > 0) {
      bytes = std::clamp(up_to(buffer_bytes / kSlots, kLeastSlotBytes), kLeastSlotBytes, kMostWishedSlotBytes);
    }
    geometry.slot_bytes[lane] = bytes;
  }
  return geometry;
}

size_t Geometry::connection_offset(int peer, Lane lane) const {
  return kHeaderBytes + (static_cast<size_t>(lane) * ranks + peer) * sizeof(Connection);
}

size_t Geometry::data_offset(int peer, Lane lane) const {
  size_t offset = up_to(kHeaderBytes + static_cast<size_t>(kLanes) * ranks * sizeof(Connection), kPage);
  if (lane == Lane::kMessages) offset += ranks * kSlots * slot_bytes[0];
  return offset + peer * kSlots * slot_bytes[static_cast<int>(lane)];
}

size_t Geometry::total_bytes() const { return data_offset(ranks, Lane::kMessages); }

std::shared_ptr<Arena> Arena::create(const Geometry& geometry, int rank, std::array<uint64_t, 2> identity,
                                     bool shareable) {
  const std::shared_ptr<Arena> arena(new Arena(SharedMemory::create(geometry.total_bytes(), shareable), geometry));
  auto* const header = new (arena->memory_.data()) ArenaHeader{};
  header->magic = kMagic;
  header->version = kVersion;
  header->rank = rank;
  header->ranks = geometry.ranks;
  header->slots = kSlots;
  header->identity = identity;
  for (int lane = 0; lane < kLanes; ++lane) header->slot_bytes[lane] = geometry.slot_bytes[lane];
  return arena;
}

std::shared_ptr<Arena> Arena::map(const Geometry& geometry, int rank, std::array<uint64_t, 2> identity,
                                  const MemoryHandle& handle) {
  const std::shared_ptr<Arena> arena(new Arena(SharedMemory::map(handle, geometry.total_bytes()), geometry));
  const ArenaHeader& header = arena->header();
  bool right = header.magic == kMagic && header.version == kVersion && header.rank == rank &&
               header.ranks == geometry.ranks && header.slots == kSlots && header.identity == identity;
  for (int lane = 0; lane < kLanes; ++lane) right = right && header.slot_bytes[lane] == geometry.slot_bytes[lane];
  if (!right) {
    fail(ncclRemoteError,
         "what rank {} offers as its shared memory is not that of this communicator: do all ranks run the same "
         "build with the same NCCL_BUFFSIZE?",
         rank);
  }
  return arena;
}

Arena::~Arena() = default;

void Arena::wake() const {
  std::atomic<uint32_t>& asleep = header().asleep;
  if (asleep.exchange(kAwake) == kAwake) return;  // somebody else rings
  ::syscall(SYS_futex, &asleep, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace nitinol::cpu
