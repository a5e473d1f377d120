// A rank's arena: the memory into which other ranks of the host put what they send to it.
//
//   first             header: who and what shape, the bell that wakes the rank, the abort word, the last collectives
//   from a new page   for each peer and lane: one Connection, the state of the queue from that peer to this rank
//   from a new page   for each peer and lane: the slots' data
//
// A queue has kSlots slots. Slot k % kSlots is filled when its sequence is k + 1; the receiver counts in `consumed`
// what it has taken, and wakes the sender for every kSlotsToCollect. Small payloads lie beside their sequence, in the
// same cache line. The file behind the arena is sparse: what no message has touched costs nothing. Collectives and
// messages have lanes of their own, so that their order among each other does not matter.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "executor/holder.h"
#include "executor/host_call.h"
#include "executor/label.h"
#include "model/operation_times.h"
#include "model/signature.h"
#include "transport/transport.h"

namespace nitinol::cpu {

/// By which it is offered to other processes.
inline constexpr uint64_t kArenaName = 0x6370752d6172656e;  // "cpu-aren"

enum class Lane : int { kCollectives, kMessages };
inline constexpr int kLanes = 2;
inline constexpr int kSlots = 4;
inline constexpr int kSlotsToCollect = kSlots / 2;
inline constexpr size_t kInlineBytes = 48;

/// What a rank is told when it is woken, and what it says when it sleeps: which queue, and which end of it.
enum class Event : uint32_t { kFilled, kFreed };
constexpr uint32_t bell_code(int peer, Lane lane, Event event) {
  return 1 + 4 * static_cast<uint32_t>(peer) + 2 * static_cast<uint32_t>(lane) + static_cast<uint32_t>(event);
}
inline constexpr uint32_t kAwake = 0;
inline constexpr uint32_t kAnything = ~0U;
/// For which of a peer's doings a rank waits, as it tells whoever looks for circles: bits.
inline constexpr uint32_t kAwaitsFilled = 1;  ///< that it sends
inline constexpr uint32_t kAwaitsFreed = 2;   ///< that it receives
inline constexpr int kAwaitsBits = 2;         ///< in collectives a number of the wait stands above them

struct Slot {
  alignas(64) std::atomic<uint64_t> sequence;
  uint32_t bytes;
  /// The lowest 8 bits: how many slots of the opposite queue the sender has taken, to save a look at its count. The
  /// other 24: the tag of the operation that the data belongs to.
  uint32_t tag_and_consumed;
  std::array<std::byte, kInlineBytes> payload;
};
static_assert(sizeof(Slot) == 64 && std::atomic<uint64_t>::is_always_lock_free);

/// What the sender says of the message that a piece belongs to, for whoever wonders at the piece.
struct MessageNote {
  std::atomic<uint64_t> number;
  std::atomic<uint64_t> packed;  ///< MessageSignature::packed()

  void write(const MessageSignature& message) {
    number.store(message.number, std::memory_order_relaxed);
    packed.store(message.packed(), std::memory_order_relaxed);
  }
  MessageSignature read() const { return MessageSignature::unpacked(number.load(), packed.load()); }
};

/// A collective that somebody tells of; number 0: none.
struct CollectiveNote {
  std::atomic<uint64_t> sequence;
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> call;

  void clear() { sequence.store(0); }
  void write(const Signature& collective) {
    clear();
    count.store(collective.count);
    call.store(collective.call);
    sequence.store(collective.sequence);
  }
  /// Valid if the number is still the same afterwards, or nobody writes any more.
  Signature read() const {
    const uint64_t number = sequence.load();
    return {number, count.load(), call.load()};
  }
};

struct Connection {
  alignas(64) std::atomic<uint64_t> consumed;
  /// What the arena's owner waits for, once it has waited for long: in messages, or in a collective.
  std::atomic<uint32_t> awaited;
  MessageNote receives;  ///< in which receive and
  MessageNote sends;     ///< in which send
  /// In the lane of collectives: the call in which the arena's owner waits for the peer.
  std::atomic<HostCall> host_call;
  /// There, too: the peer's last that moved anything, once it has settled; for an owner that has not reached it.
  CollectiveNote peers_last;
  std::array<Slot, kSlots> slots;
  std::array<MessageNote, kSlots> notes;  ///< for each slot, in the lane of messages
};

/// The shape of the arenas of a communicator: the same on all its ranks.
struct Geometry {
  int ranks = 1;
  std::array<size_t, kLanes> slot_bytes{};

  /// `buffer_bytes` is the user's wish for the size of a queue; 0: none.
  static Geometry of(int ranks, size_t buffer_bytes);

  size_t connection_offset(int peer, Lane lane) const;
  size_t data_offset(int peer, Lane lane) const;
  size_t total_bytes() const;
};

/// A rank's launches, but for those in graphs.
struct LaunchCounts {
  std::atomic<uint64_t> issued;
  std::atomic<uint64_t> begun;
  std::atomic<uint64_t> ended;
  std::atomic<uint32_t> captured;  ///< not zero: there are some in graphs, too
};

struct ArenaHeader {
  uint64_t magic;
  uint32_t version;
  int32_t rank;
  int32_t ranks;
  int32_t slots;
  std::array<uint64_t, 2> identity;
  std::array<uint64_t, kLanes> slot_bytes;
  /// kAwake, or what the sleeping rank waits for: a bell_code() or kAnything. A futex.
  alignas(64) std::atomic<uint32_t> asleep;
  alignas(64) std::atomic<uint32_t> aborted;
  int32_t pid;                        ///< of the rank's process
  int32_t device;                     ///< its virtual GPU
  std::atomic<uint32_t> in_messages;  ///< whether the rank is in a group of sends and receives
  std::atomic<uint32_t> reaching;     ///< whether its host waits for peers' memory, which its next call needs
  std::atomic<uint32_t> leaving;      ///< whether it is through with all operations, and calls no more
  std::atomic<uint32_t> settled;      ///< whether it has left, and what it has begun and taken (`consumed`) is all
  uint64_t pid_namespace;             ///< in which the pid counts
  std::atomic<uint64_t> waits_in;     ///< the number of the group of messages in which it has waited for long; 0: none
  std::atomic<uint64_t> looks;        ///< how often it has seen, where `awaited` says for what, that nothing came of it
  alignas(64) LaunchCounts launches;
  SharedLabel label;    ///< of the call in which it has waited for long
  SharedHolder holder;  ///< or the call that keeps it from its next: before it in the stream, or awaited on the host
  std::atomic<uint32_t> held_on_host;  ///< whether it is the host that waits for the holder, and has not called yet
  CollectiveNote announced;            ///< its next, which its host is about to issue once all ranks have come to it
  SharedLabel announced_alone;         ///< set: all that was launched before that is through, graphs too
  OperationTimes calls;                ///< its last collectives, for whoever waits for this rank and wonders
};

/// A rank's own arena, or that of a peer. Its memory is trusted no further than that it is there.
class Arena {
 public:
  /// Makes a rank's own arena; `shareable`: with other processes.
  static std::shared_ptr<Arena> create(const Geometry& geometry, int rank, std::array<uint64_t, 2> identity,
                                       bool shareable);
  /// The arena that a peer in another process has made. Throws Error if it is not what it should be.
  static std::shared_ptr<Arena> map(const Geometry& geometry, int rank, std::array<uint64_t, 2> identity,
                                    const MemoryHandle& handle);
  ~Arena();

  MemoryHandle share() const { return memory_.share(); }
  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(memory_.data()); }
  Connection& from(int peer, Lane lane) const {
    return *reinterpret_cast<Connection*>(memory_.data() + geometry_.connection_offset(peer, lane));
  }
  std::byte* data_from(int peer, Lane lane) const { return memory_.data() + geometry_.data_offset(peer, lane); }

  /// Tells the arena's owner that something it may be waiting for has happened. Any thread, any process.
  void ring(uint32_t code) const {
    const uint32_t asleep = header().asleep.load();
    if (asleep != kAwake && (asleep == code || asleep == kAnything)) wake();
  }
  /// Wakes the owner whatever it waits for.
  void wake() const;

 private:
  Arena(SharedMemory memory, const Geometry& geometry) : memory_(std::move(memory)), geometry_(geometry) {}

  SharedMemory memory_;
  Geometry geometry_;
};

}  // namespace nitinol::cpu
