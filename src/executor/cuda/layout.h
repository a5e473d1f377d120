// Where things lie in the memory through which GPUs talk: queues of slots, their flags and their step counters.
//
// A queue set holds one connection (a queue of slots) for each channel and ordered pair of ranks. Every rank owns one
// region per queue set, which all peers map. What a region of rank R holds:
//   credits  [channel][peer]          how many of R's steps `peer` has consumed; written by `peer`
//   filled   [channel][peer]          how many steps `peer` has published to R; written by `peer` (Simple only)
//   state    [channel][peer]          R's own counters, from one operation to the next; unused in host memory. For R
//                                     itself OwnState. In brief queue sets that is all there is (BriefState)
//   runs     [peer][direction]        how many calls have run (run_counter.h): messages to and from the peer; for R
//                                     itself collectives
//   standing                          of messages: StandingTable
//   slots    [channel][sender][slot]  written by `sender`: all others, or the rank before R alone. In brief queue sets
//                                     [slot][channel][sender], with an empty place for R itself
// Channels keep their credits and flags in lines of their own: looks at the same line of host memory wait for each
// other, a microsecond each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "model/run_notes.h"
#include "model/types.h"

namespace nitinol::cuda {

inline constexpr int kMaxRanks = 72;

/// The queue sets. Messages have their own, so that they and collectives never share a connection; and so have sums
/// whose parts have CTAs of their own, as they take many channels with few short slots; what goes by small CTAs from
/// all ranks to all (kMesh), with twice as many slots; and data that goes along a line of ranks (kLine), where each
/// takes from the one before it alone, so that there is room for many slots; and what goes by joined parts (mover.h),
/// with two streams. And brief operations (brief_connections.h) have theirs, with longer slots for those that need
/// them, and what goes by LL16.
enum class Queue : int {
  kLL,
  kLL128,
  kSimple,
  kMessageLL,
  kMessageLL128,
  kMessageSimple,
  kSums,
  kMesh,
  kLine,
  kJoined,
  kBriefLL,
  kBriefLL128,
  kLongBrief,
  kLL16
};
inline constexpr int kQueues = 14;

constexpr Queue queue_of(Protocol protocol) { return static_cast<Queue>(protocol); }
constexpr Queue message_queue_of(Protocol protocol) {
  return static_cast<Queue>(static_cast<int>(Queue::kMessageLL) + static_cast<int>(protocol));
}

/// Those of brief operations, from the shortest slots to the longest.
inline constexpr Queue kBriefQueues[] = {Queue::kBriefLL, Queue::kBriefLL128, Queue::kLongBrief};
constexpr bool is_brief(Queue queue) { return std::ranges::find(kBriefQueues, queue) != std::end(kBriefQueues); }
/// Of brief operations.
constexpr Protocol protocol_of_brief(Queue queue) {
  return queue == Queue::kBriefLL ? Protocol::kLL : Protocol::kLL128;
}

/// Counters of one connection and its reverse, in steps. They wrap.
struct ConnectionState {
  uint32_t sent = 0;      ///< steps this rank has published to the peer
  uint32_t received = 0;  ///< steps this rank has consumed from the peer
  uint32_t posted = 0;    ///< the value of `received` that the peer was last told
  uint32_t credit = 0;    ///< steps of this rank that the peer is known to have consumed
};

/// In the place of a rank's connection with itself.
struct OwnState {
  uint32_t stopped = 0;  ///< not zero: a kernel has aborted, and later ones send nothing
  uint32_t unused[3] = {};
};
static_assert(sizeof(OwnState) == sizeof(ConnectionState));

/// The same where a channel carries brief operations. Its counters wrap.
struct BriefState {
  uint32_t stopped = 0;  ///< as in OwnState
  uint32_t posted = 0;   ///< the epoch that peers were last told
  uint32_t epoch = 0;    ///< steps that this rank has carried out
  uint32_t credit = 0;   ///< those that all peers are known to have carried out
};
static_assert(sizeof(BriefState) == sizeof(ConnectionState));

/// What CTAs of messages do (standing.h).
struct StandingTable {
  static constexpr int kCtas = 320;        ///< that a launch has at most
  static constexpr uint32_t kWhole = 512;  ///< that its CTAs make together in a count
  uint32_t begun[1 << kProtocols];         ///< counts, by the protocols of launches that run beside each other
  alignas(16) uint16_t mark[kCtas][8];     ///< of the warps
};
static_assert(StandingTable::kWhole > StandingTable::kCtas);

struct QueueLayout {
  int ranks = 0;
  int channels = 0;
  int senders = 0;          ///< of each rank: all others; or one, the rank before it; or all (brief)
  uint32_t slots = 0;       ///< per connection, a power of two
  uint32_t slot_bytes = 0;  ///< as stored, flags included; a multiple of 1024
  int row = 0;              ///< words of a channel's credits, and of its flags
  uint32_t filled_at = 0;
  uint32_t state_at = 0;
  uint32_t slots_at = 0;

  NITINOL_HOST_DEVICE size_t bytes() const {
    return slots_at + static_cast<size_t>(channels) * static_cast<size_t>(senders) * slots * slot_bytes;
  }
  NITINOL_HOST_DEVICE uint32_t* credit(char* region, int channel, int peer) const {
    return reinterpret_cast<uint32_t*>(region) + (channel * row + peer);
  }
  NITINOL_HOST_DEVICE uint32_t* filled(char* region, int channel, int peer) const {
    return reinterpret_cast<uint32_t*>(region + filled_at) + (channel * row + peer);
  }
  /// Among the rank's counters, which are a table by themselves.
  NITINOL_HOST_DEVICE ConnectionState* state(char* counters, int channel, int peer) const {
    return reinterpret_cast<ConnectionState*>(counters) + (channel * ranks + peer);
  }
  NITINOL_HOST_DEVICE OwnState* own_state(char* counters, int channel, int rank) const {
    return reinterpret_cast<OwnState*>(state(counters, channel, rank));
  }
  NITINOL_HOST_DEVICE BriefState* brief_state(char* counters, int channel, int rank) const {
    return reinterpret_cast<BriefState*>(state(counters, channel, rank));
  }
  /// Where the slots of a step of a channel begin in each rank's region: one for each sender, the rank itself included.
  /// Those of all channels lie together: with those of a channel together all-reduces between 4 GPUs took 2 to 4 %
  /// longer.
  NITINOL_HOST_DEVICE uint32_t brief_slots(int channel, uint32_t step) const {
    const uint32_t index = (step & (slots - 1)) * static_cast<uint32_t>(channels) + static_cast<uint32_t>(channel);
    return slots_at + index * static_cast<uint32_t>(ranks) * slot_bytes;
  }
  NITINOL_HOST_DEVICE uint32_t counter_bytes() const { return slots_at - state_at; }
  NITINOL_HOST_DEVICE RunCount* run_count(char* counters, int peer, bool sends) const {
    char* const first = counters + counter_bytes() - kProbeBytes - standing_bytes() - run_bytes(ranks);
    return reinterpret_cast<RunCount*>(first) + RunLines::among_messages(peer, sends);
  }
  NITINOL_HOST_DEVICE static constexpr uint32_t run_bytes(int ranks) {
    return aligned(static_cast<size_t>(RunLines::messages(ranks)) * sizeof(RunCount));
  }
  NITINOL_HOST_DEVICE StandingTable* standing(char* counters) const {
    return reinterpret_cast<StandingTable*>(counters + counter_bytes() - kProbeBytes - standing_bytes());
  }
  NITINOL_HOST_DEVICE static constexpr uint32_t standing_bytes() { return aligned(sizeof(StandingTable)); }
  NITINOL_HOST_DEVICE static constexpr uint32_t aligned(size_t bytes) {
    return static_cast<uint32_t>((bytes + 1023) / 1024 * 1024);
  }
  static constexpr uint32_t kProbeBytes = 1024;  ///< the last before the slots
  /// The slot of step `step` from `sender`, in the region of `receiver`. Of no meaning for one that does not send to
  /// it.
  NITINOL_HOST_DEVICE char* slot(char* region, int receiver, int sender, int channel, uint32_t step) const {
    const int place = channel * senders + (senders == 1 ? 0 : sender < receiver ? sender : sender - 1);
    const size_t index = static_cast<size_t>(place) * slots + (step & (slots - 1));
    return region + slots_at + index * slot_bytes;
  }
};

/// How a wire (wires.h) packs payload: units of `bytes` that take `stored` bytes in a slot, each moved by `threads`
/// threads in pieces of user data of `piece` bytes.
struct WireShape {
  uint32_t bytes;
  uint32_t stored;
  uint32_t threads;
  uint32_t piece;
};
inline constexpr WireShape kShapeOfLL8{8, 16, 1, 8};
inline constexpr WireShape kShapeOfLL16{1024, 1536, 32, 16};
inline constexpr WireShape kShapeOfLL128{960, 1024, 32, 16};
inline constexpr WireShape kShapeOfSimple{16, 16, 1, 16};

/// Where a buffer may begin and end for its units to be moved without asking for each.
enum class Bounds {
  kPieces,    ///< with whole pieces of the wire
  kWordEnds,  ///< begin with a piece, end with any word of 4 bytes
  kWords,     ///< with any word
  kHalves,    ///< with any half of a word
  kBytes,     ///< with any byte
};
/// The bytes with any multiple of which they may end.
constexpr uint32_t grain_of(Bounds bounds) { return bounds == Bounds::kBytes ? 1 : bounds == Bounds::kHalves ? 2 : 4; }
/// Whether they may begin so, too.
constexpr bool begins_anywhere(Bounds bounds) { return bounds >= Bounds::kWords; }
/// Whether they may begin and end within a word.
constexpr bool cuts_words(Bounds bounds) { return grain_of(bounds) < 4; }

/// Of the wire by which a queue set is used.
NITINOL_HOST_DEVICE constexpr WireShape shape_of(Queue queue) {
  switch (queue) {
    case Queue::kLL:
    case Queue::kBriefLL: return kShapeOfLL8;
    case Queue::kLL16:
    case Queue::kMessageLL: return kShapeOfLL16;
    case Queue::kLL128:
    case Queue::kMessageLL128:
    case Queue::kBriefLL128:
    case Queue::kLongBrief: return kShapeOfLL128;
    case Queue::kSimple:
    case Queue::kMessageSimple:
    case Queue::kSums:
    case Queue::kMesh:
    case Queue::kLine:
    case Queue::kJoined: return kShapeOfSimple;
  }
  return {};
}
/// Whether arrival is told by counters (Simple).
constexpr bool is_counted(Queue queue) { return shape_of(queue).stored == shape_of(queue).bytes; }
/// What brief operations on aligned buffers begin and end with (brief_worker.h), in bytes.
NITINOL_HOST_DEVICE constexpr uint32_t brief_piece(Protocol protocol) {
  return protocol == Protocol::kLL ? 4 : kShapeOfLL128.piece;
}
/// Payload bytes that fit into a slot.
NITINOL_HOST_DEVICE constexpr uint32_t payload_of(Queue queue, uint32_t slot_bytes) {
  const WireShape shape = shape_of(queue);
  return slot_bytes / shape.stored * shape.bytes;
}

/// Warps of a small CTA that work; two of these CTAs fit on a multiprocessor.
inline constexpr int kFewWorkers = 8;
inline constexpr int kSmallThreads = (kFewWorkers + 1) * 32;

/// Shared memory of a channel in a CTA: the workers' progress, what was last seen of each rank, then for each warp four
/// arrays with an entry per rank.
NITINOL_HOST_DEVICE constexpr size_t shared_bytes(int ranks, int warps) {
  return 128 + static_cast<size_t>(ranks) * (16 + static_cast<size_t>(warps) * 64);
}

/// What movers (mover.h) copy goes in pieces through stages in shared memory, which each fills in turns.
inline constexpr int kPieceStages = 4;
/// Stages begin with multiples of this (bulk copies in ptx.h), and so do the bytes of a piece.
inline constexpr uint32_t kBulkAlignment = 128;
/// A piece keeps its place within 16 bytes.
NITINOL_HOST_DEVICE constexpr uint32_t stage_bytes(uint32_t piece) { return piece + kBulkAlignment; }
inline constexpr uint32_t kMoverBytes = 48;  ///< besides

/// Where in the shared memory of a CTA with joined parts the stages begin: behind what is the workers' and the movers'.
NITINOL_HOST_DEVICE constexpr uint32_t stages_at(int ranks, int movers) {
  const size_t before = shared_bytes(ranks, kFewWorkers + 1) + static_cast<size_t>(movers) * kMoverBytes;
  return static_cast<uint32_t>((before + kBulkAlignment - 1) / kBulkAlignment * kBulkAlignment);
}
/// All of it.
NITINOL_HOST_DEVICE constexpr size_t joined_shared_bytes(int ranks, int movers, uint32_t piece) {
  return stages_at(ranks, movers) + static_cast<size_t>(movers) * kPieceStages * stage_bytes(piece);
}

inline QueueLayout make_layout(int ranks, int channels, uint32_t slots, uint32_t slot_bytes, int senders) {
  const size_t connections = static_cast<size_t>(ranks) * static_cast<size_t>(channels);
  QueueLayout layout{
      .ranks = ranks, .channels = channels, .senders = senders, .slots = slots, .slot_bytes = slot_bytes};
  layout.row = (ranks + 31) / 32 * 32;
  const size_t words = static_cast<size_t>(layout.row) * static_cast<size_t>(channels);
  layout.filled_at = QueueLayout::aligned(words * sizeof(uint32_t));
  layout.state_at = layout.filled_at + QueueLayout::aligned(words * sizeof(uint32_t));
  layout.slots_at = layout.state_at + QueueLayout::aligned(connections * sizeof(ConnectionState)) +
                    QueueLayout::run_bytes(ranks) + QueueLayout::standing_bytes() + QueueLayout::kProbeBytes;
  return layout;
}
inline QueueLayout make_layout(int ranks, int channels, uint32_t slots, uint32_t slot_bytes) {
  return make_layout(ranks, channels, slots, slot_bytes, ranks - 1);
}

}  // namespace nitinol::cuda
