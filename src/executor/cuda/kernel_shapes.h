// What hosts and kernels have to say alike: how large CTAs are, in what pieces they move data, and which kernels have
// what bounds.
#pragma once

#include <algorithm>
#include <type_traits>

#include "algorithm/table.h"
#include "executor/cuda/combiner.h"
#include "executor/cuda/parameters.h"

namespace nitinol::cuda {

/// Warps of the largest CTA that work; with Simple the clerk comes on top.
inline constexpr int kMaxWorkers = 16;
constexpr int max_threads(Protocol protocol) { return (kMaxWorkers + (protocol == Protocol::kSimple ? 1 : 0)) * 32; }

/// Where CTAs are few one of them may be as good as two small ones: each row of its threads (threadIdx.y) carries a
/// channel of its own.
inline constexpr int kMostRows = 2;

/// How many steps each connection carries of an operation that is brief (brief_connections.h); 0: it never is. Two
/// shots are where much is reduced: kernels take room.
constexpr uint32_t steps_if_brief(Collective what, Algorithm algorithm, Protocol protocol, DataType type,
                                  Combiner with) {
  if (protocol == Protocol::kSimple) return 0;
  if (algorithm == Algorithm::kOneShot) return rooted(what) ? 0 : 1;
  return with == Combiner::kSum && algorithm::suits_two_brief_shots(what, algorithm, protocol, type) ? 2 : 0;
}

/// Of the kernels for words. Where each rank has a block of its own those follow each other, however long they are;
/// else a channel's part begins aligned.
constexpr Bounds bounds_of_words(Collective what) {
  return has_block_per_rank(what) ? Bounds::kWords : Bounds::kWordEnds;
}
/// Of those for what begins or ends elsewhere.
constexpr Bounds bounds_of_grains(Collective what, DataType type) {
  const size_t grain = algorithm::grain_of_blocks(what, type);
  return grain == 1 ? Bounds::kBytes : grain == 2 ? Bounds::kHalves : Bounds::kWords;
}

/// Movers of a CTA in which the parts of a channel are joined: of those that send, and those that take if any do.
constexpr int movers_of(Collective what, int ranks) {
  return what == Collective::kReduceScatter ? ranks - 1 : 2 * (ranks - 1);
}
/// Bytes of their pieces. All-reduce of 256 MB between 4 took 1274 us with 24 CTAs, with pieces of 8 KB 1284; for
/// others only those were measured.
constexpr uint32_t piece_of(Collective what) { return what == Collective::kAllReduce ? 4096 : 8192; }
inline constexpr int kMostMovers = 6;  ///< threads for more of them would have fewer registers
constexpr size_t joined_shared_bytes(Collective what, int ranks) {
  return joined_shared_bytes(ranks, movers_of(what, ranks), piece_of(what));
}
/// Of the collective that takes most.
constexpr size_t most_joined_bytes(int ranks) {
  size_t most = 0;
  for (size_t what = 0; what < kCollectives; ++what) {
    most = std::max(most, joined_shared_bytes(static_cast<Collective>(what), ranks));
  }
  return most;
}

/// Threads of the largest CTA that carries messages; two of these fit on a multiprocessor.
inline constexpr int kMaxMessageThreads = 8 * 32;
static_assert(kMaxMessageThreads / 32 <= std::extent_v<decltype(StandingTable::mark), 1>);

/// How many channels carry a message. Sender and receiver agree: it depends on the size alone.
NITINOL_HOST_DEVICE int message_channels(size_t bytes, const MessageGrain& grain, int channels) {
  const size_t wanted = bytes / grain.channel_bytes;
  return wanted < 1 ? 1 : wanted < static_cast<size_t>(channels) ? static_cast<int>(wanted) : channels;
}

/// The bytes of a chunk of a channel's part of a message: a slot, or fewer where the receiver begins only with whole
/// chunks, so that it begins soon.
NITINOL_HOST_DEVICE size_t message_chunk(Protocol protocol, size_t part, const MessageGrain& grain,
                                         const QueueLayout& layout) {
  const size_t slot = payload_of(message_queue_of(protocol), layout.slot_bytes) / 64 * 64;
  if (protocol != Protocol::kSimple) return slot;
  const size_t quarter = (part / 4 + 1023) / 1024 * 1024;
  const size_t wanted = quarter < grain.least_chunk_bytes ? grain.least_chunk_bytes : quarter;
  return wanted < slot ? wanted : slot;
}

}  // namespace nitinol::cuda
