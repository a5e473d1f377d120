// One rank as its operations see it: its arena, the queues to and from its peers, and the means to wait.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "executor/cpu/arena.h"
#include "executor/cpu/waiter.h"
#include "executor/executor.h"

namespace nitinol::cpu {

/// The queues to and from one peer in one lane. The counts are the rank's own; nothing a peer writes can change them.
struct Link {
  Connection* out = nullptr;  ///< in the peer's arena
  std::byte* out_data = nullptr;
  Connection* in = nullptr;  ///< in the own arena
  std::byte* in_data = nullptr;
  uint64_t sent = 0;
  uint64_t freed = 0;  ///< how many of them the peer is known to have taken
  uint64_t received = 0;
};

class Rank {
 public:
  /// Makes the arena and offers it to peers. Throws Error.
  explicit Rank(ExecutorSetup setup);
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return geometry_.ranks; }
  const Geometry& geometry() const { return geometry_; }
  size_t slot_bytes(Lane lane) const { return geometry_.slot_bytes[static_cast<int>(lane)]; }

  // Set-up: one thread at a time.

  /// Reaches the memory of the peers that the launch needs. Throws Error.
  void prepare(const Launch& launch);
  /// Nothing is offered, nobody called any more; operations that still run may finish.
  void close();

  // Any thread.

  void abort();
  void report(ncclResult_t code, const std::string& sentence);

  // Operations: one at a time, which the holder of the lock is.

  std::unique_lock<std::mutex> begin() { return std::unique_lock(running_); }
  bool stopped() const { return waiter_.aborted(); }

  /// Waits until the next slot from the peer is filled; false: stop.
  bool await_filled(int peer, Lane lane) {
    Link& link = link_to(peer, lane);
    return waiter_.until([&] { return filled(link); }, bell_code(peer, lane, Event::kFilled));
  }
  /// Waits until the next slot to the peer is free; false: stop.
  bool await_free(int peer, Lane lane) {
    Link& link = link_to(peer, lane);
    return waiter_.until([&] { return has_room(link); }, bell_code(peer, lane, Event::kFreed));
  }
  template <class Ready>
  bool await_anything(Ready&& ready) {
    return waiter_.until(ready, kAnything);
  }

  static bool filled(Link& link) {
    const Slot& slot = link.in->slots[link.received % kSlots];
    if (slot.sequence.load() != link.received + 1) return false;
    // Believed only as far as the count may be: a peer that lies spoils its own memory alone.
    const uint32_t more = slot.consumed - static_cast<uint32_t>(link.freed);
    if (more <= link.sent - link.freed) link.freed += more;
    return true;
  }
  static bool has_room(Link& link) {
    if (link.sent - link.freed < kSlots) return true;
    link.freed = link.out->consumed.load();
    return link.sent - link.freed < kSlots;
  }

  /// Payload of the filled slot: what its `bytes` claim is checked by the caller before anything is read.
  const std::byte* filled_data(const Link& link, Lane lane, size_t bytes) const {
    const size_t index = link.received % kSlots;
    return bytes <= kInlineBytes ? link.in->slots[index].payload.data() : link.in_data + index * slot_bytes(lane);
  }
  static uint64_t filled_bytes(const Link& link) { return link.in->slots[link.received % kSlots].bytes; }
  /// Where the payload of the free slot goes.
  std::byte* free_data(const Link& link, Lane lane, size_t bytes) const {
    const size_t index = link.sent % kSlots;
    return bytes <= kInlineBytes ? link.out->slots[index].payload.data() : link.out_data + index * slot_bytes(lane);
  }

  void publish(int peer, Lane lane, size_t bytes) {
    Link& link = link_to(peer, lane);
    Slot& slot = link.out->slots[link.sent % kSlots];
    slot.bytes = static_cast<uint32_t>(bytes);
    slot.consumed = static_cast<uint32_t>(link.received);
    slot.sequence.store(++link.sent);
    reached_[static_cast<size_t>(peer)]->arena->ring(bell_code(rank_, lane, Event::kFilled));
  }
  void release(int peer, Lane lane) {
    Link& link = link_to(peer, lane);
    link.in->consumed.store(++link.received);
    reached_[static_cast<size_t>(peer)]->arena->ring(bell_code(rank_, lane, Event::kFreed));
  }

  Link& link_to(int peer, Lane lane) { return reached_[static_cast<size_t>(peer)]->links[static_cast<size_t>(lane)]; }

 private:
  void reach(int peer);
  void reach_for(const CollectiveWork& work);

  int rank_;
  std::array<uint64_t, 2> identity_;
  HandleExchange* handles_;
  bool shareable_;  ///< a peer lives in another process
  Geometry geometry_;
  std::shared_ptr<Arena> own_;
  Waiter waiter_;

  /// Where a peer lives: all that is kept of what it told about itself, as there may be many.
  struct Home {
    uint64_t host;
    uint64_t process;
  };
  struct Reached {
    std::shared_ptr<Arena> arena;
    std::array<Link, kLanes> links;
  };
  std::vector<Home> homes_;
  int unreached_;                                  ///< how many peers have not been reached yet
  std::vector<std::unique_ptr<Reached>> reached_;  ///< empty for peers that were not
  std::vector<bool> known_;                        ///< by collective, algorithm and root: its peers are reached

  std::mutex running_;
  std::mutex reporting_;
  std::function<void(ncclResult_t, const std::string&)> failed_;  ///< empty once it was called
};

}  // namespace nitinol::cpu
