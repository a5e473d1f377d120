// One rank as its operations see it: its arena, the queues to and from its peers, and the means to wait.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/attendance.h"
#include "executor/cpu/arena.h"
#include "executor/cpu/circle_search.h"
#include "executor/cpu/occupancy.h"
#include "executor/cpu/turn.h"
#include "executor/cpu/waiter.h"
#include "executor/dead_peers.h"
#include "executor/executor.h"
#include "executor/label.h"

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
  bool is_quiet = false;      ///< the peer was not rung for what was taken last, in this launch
  uint64_t messages_out = 0;  ///< begun so far, in the lane of messages
  uint64_t messages_in = 0;
};

/// What a rank in a group of sends and receives waits for of one peer: kAwaits..., and in which of its messages.
struct Awaited {
  int peer = 0;
  uint32_t what = 0;
  MessageSignature receives{};
  MessageSignature sends{};
  /// One of them.
  PeerMessage message() const {
    const bool receiving = (what & kAwaitsFilled) != 0;
    return {!receiving, peer, receiving ? receives : sends};
  }
  std::string text() const { return message().text(); }
};

class Rank {
 public:
  /// Makes the arena and offers it to peers. Throws Error.
  explicit Rank(ExecutorSetup setup);
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return geometry_.ranks; }
  int device() const { return own_->header().device; }
  const Arena& arena() const { return *own_; }
  const Geometry& geometry() const { return geometry_; }
  size_t slot_bytes(Lane lane) const { return geometry_.slot_bytes[static_cast<int>(lane)]; }

  // Set-up: one thread at a time.

  /// Reaches the memory of all peers. Throws Error.
  void connect();
  /// Reaches the memory of the peers that the launch needs; with a limit of time it looks for that of the others, too.
  /// Throws Error.
  void prepare(const Launch& launch);
  /// Whether there is nothing to reach for it.
  bool is_ready_for(const Launch& launch);
  /// The collective that follows all that was launched; null: none.
  void announce(const CollectiveWork* next);
  /// It waits on the host before that, or another call; see Executor. Not at the same time as announce().
  void note_wait(const HeldProgram* held);
  /// The host waits for the ranks in this call.
  void wait_on_host(HostCall call, std::span<const int> ranks);
  /// Nothing is offered, nobody called any more; operations that still run may finish.
  void close();

  // Any thread.

  /// What this rank has begun and ended; kept for whoever holds it.
  std::shared_ptr<const OperationTimes> calls() const { return {own_, calls_}; }
  Executor::DoingsOfPeer doings_of(int peer) const;
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  void abort();
  /// After that: no operation runs, and none will.
  bool is_quiet();
  /// All operations are through, and no more will come: peers that wait for one are wrong.
  void leave();
  /// As Executor::is_needed().
  bool is_needed() const;
  /// As Executor::awaited().
  std::vector<int> awaited();
  /// Of calls in which nobody had to wait for the other, or of messages that nobody received; once all ranks have left.
  std::optional<std::string> difference_in_the_end() const;
  void report(ncclResult_t code, const std::string& sentence);
  /// What was thrown in a kernel is the communicator's failure, as far as there is memory to tell it.
  void give_up(const std::exception& thrown) noexcept;
  /// Afterwards nobody is told of failures any more. Not under a lock that whoever is told takes.
  void stop_reports();

  // Operations: one at a time, which the holder of the lock is.

  Turn& turn() { return turn_; }
  Occupancy& occupancy() { return occupancy_; }
  /// Between these two everything belongs to one collective; peers are told which.
  void begin_collective(const CollectiveWork& work) {
    const Signature signature = Signature::of(work, ++sequence_);
    tag_ = signature.tag() << 8;
    on_host_since_.reset();
    calls_->begin(signature);
  }
  void end_collective() {
    if (told_label_) untell_label();
    if (!stopped()) calls_->end(sequence_);
  }
  void begin_messages() { own_->header().in_messages.store(1, std::memory_order_relaxed); }
  void end_messages() {
    own_->header().in_messages.store(0, std::memory_order_relaxed);
    if (told_waits_) untell_waits();
    if (told_label_) untell_label();
  }
  bool stopped() const { return waiter_.aborted(); }

  /// For collectives: waits until the next slot from the peer is filled; false: stop.
  bool await_filled(int peer, Lane lane) {
    Link& link = link_to(peer, lane);
    return await_peer([&] { return filled(link); }, bell_code(peer, lane, Event::kFilled), {peer, kAwaitsFilled});
  }
  /// For collectives: waits until the next slot to the peer is free; false: stop.
  bool await_free(int peer, Lane lane) {
    Link& link = link_to(peer, lane);
    return await_peer([&] { return has_room(link); }, bell_code(peer, lane, Event::kFreed), {peer, kAwaitsFreed});
  }
  /// For messages: awaited() lists all that they wait for.
  template <class Ready, class List>
  bool await_anything(Ready&& ready, List&& awaited) {
    return waiter_.until(ready, kAnything, [&] { on_message_stall(awaited(), ready); });
  }

  static bool filled(Link& link) {
    const Slot& slot = link.in->slots[link.received % kSlots];
    if (slot.sequence.load() != link.received + 1) return false;
    // Believed only as far as the count may be: a peer that lies spoils its own memory alone.
    const uint8_t more = static_cast<uint8_t>(slot.tag_and_consumed) - static_cast<uint8_t>(link.freed);
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
  /// Whether the filled slot has so many bytes and belongs to the current collective.
  bool fits(const Link& link, size_t bytes) const {
    const Slot& slot = link.in->slots[link.received % kSlots];
    return slot.bytes == bytes && (slot.tag_and_consumed & ~0xffU) == tag_;
  }
  static uint32_t filled_tag(const Link& link) { return link.in->slots[link.received % kSlots].tag_and_consumed >> 8; }
  /// Where the payload of the free slot goes.
  std::byte* free_data(const Link& link, Lane lane, size_t bytes) const {
    const size_t index = link.sent % kSlots;
    return bytes <= kInlineBytes ? link.out->slots[index].payload.data() : link.out_data + index * slot_bytes(lane);
  }

  void publish(int peer, Lane lane, size_t bytes) { publish(peer, lane, bytes, tag_); }
  /// `tag`: shifted by 8 bits.
  void publish(int peer, Lane lane, size_t bytes, uint32_t tag) {
    Link& link = link_to(peer, lane);
    Slot& slot = link.out->slots[link.sent % kSlots];
    slot.bytes = static_cast<uint32_t>(bytes);
    slot.tag_and_consumed = tag | static_cast<uint8_t>(link.received);
    slot.sequence.store(++link.sent);
    reached_[static_cast<size_t>(peer)]->arena->ring(bell_code(rank_, lane, Event::kFilled));
  }
  /// The peer is woken by every other slot: it waits only when all of them are full.
  void release(int peer, Lane lane) {
    Link& link = link_to(peer, lane);
    const bool wakes = ++link.received % kSlotsToCollect == 0;
    link.in->consumed.store(link.received, wakes ? std::memory_order_seq_cst : std::memory_order_release);
    if (wakes) return reached_[static_cast<size_t>(peer)]->arena->ring(bell_code(rank_, lane, Event::kFreed));
    if (std::exchange(link.is_quiet, true)) return;
    quiet_.push_back({peer, lane});
  }
  /// At the end of a launch, behind which nothing may be taken for long: wakes those as well who wait for a single
  /// slot.
  void ring_for_single_slots();

  /// What came from the peer is not of the collective that this rank is in: says so, with both sides' calls.
  void report_mismatch(int peer);
  /// Says so of two calls as they are told.
  void report_mismatch(const std::string& mine, int peer, const std::string& theirs);

  Link& link_to(int peer, Lane lane) { return reached_[static_cast<size_t>(peer)]->links[static_cast<size_t>(lane)]; }

 private:
  void reach(int peer);
  void reach_to_take(int peer);
  std::shared_ptr<Arena> find_or_map_arena(int peer);
  std::shared_ptr<Arena> stand_in_for(int peer) const;
  void enter_reached(int peer, std::shared_ptr<Arena> arena);
  bool is_to_look_for_all() const { return timeout_.load().count() > 0 && !looked_for_all_; }
  void look_for_all();
  struct Quiet {
    int peer;
    Lane lane;
  };
  bool is_missed(int peer) const;
  bool has_reached(int peer) const { return peer == rank_ || reached_[static_cast<size_t>(peer)] != nullptr; }
  void reach_for(const CollectiveWork& work);
  size_t index_of(const CollectiveWork& work) const;
  std::vector<bool> needed_for(const CollectiveWork& work) const;
  void on_stall();
  /// What a rank in a collective waits for: kAwaits...
  struct PeerWait {
    int peer;
    uint32_t what;
  };
  template <class Ready>
  bool await_peer(Ready&& ready, uint32_t code, PeerWait wait) {
    const bool came = waiter_.until(ready, code, [&] { on_stall_for(wait); });
    if (told_wait_for_) untell_wait();
    return came;
  }
  void on_stall_for(PeerWait wait);
  void untell_wait();
  void on_message_stall(const std::vector<Awaited>& all, const std::function<bool()>& ready);
  void tell_waits(const std::vector<Awaited>& all);
  void untell_waits();
  bool find_circle();
  /// What the rank waits in.
  struct PresentCall {
    Signature collective{};                          ///< number 0: it is in
    const std::vector<Awaited>* messages = nullptr;  ///< these
    std::string text(int peer) const;
  };
  bool find_long_circle(const PresentCall& call, const std::function<bool()>& ready);
  void untell_label();
  CircleSearch::Known known_arenas() const;
  CircleSearch::Reach reach_arenas();
  std::shared_ptr<Arena> arena_to_look_at(int peer);
  std::string reason_why_never(int peer) const;
  std::string reason_announced(int peer) const;
  bool leaves_this_rank(const Arena& peer) const;
  bool find_leaver();
  bool waits_on_host(int peer) const;
  bool find_waiting_on_host();
  std::vector<int> known_peers() const;
  std::vector<int> peers_inside_or_late() const;
  std::string doings_of_all(const std::vector<int>& peers) const;
  bool will_say_themselves(const std::vector<int>& peers) const;
  bool find_stopped(const std::string& call, const std::vector<int>& peers);
  bool find_dead(const std::string& call, const std::vector<int>& peers);
  bool has_left(int peer) const;
  ProcessState state_of(int peer) const;
  struct Difference {
    Signature mine;
    Signature theirs;
  };
  std::optional<Difference> first_difference(const Arena& arena) const;
  std::optional<std::string> sent_in_vain(int peer) const;
  std::optional<std::string> never_received(int peer) const;
  bool find_mismatch();
  Signature current() const { return calls_->find(sequence_).value_or(Signature{sequence_, 0, 0}); }
  std::chrono::milliseconds stalled_for();
  bool is_to_be_told_of(std::chrono::milliseconds waited) const;
  struct Stall {
    std::chrono::milliseconds waited;
    std::vector<int> peers;  ///< for which
    std::string what;        ///< as delay_sentence() takes it
    std::string doings;
  };
  void tell_of(const Stall& stall);
  const Arena* arena_of(int peer) const { return watched_[static_cast<size_t>(peer)].load(std::memory_order_acquire); }
  bool in_this_process(int peer) const {
    return homes_[static_cast<size_t>(peer)].process == homes_[static_cast<size_t>(rank_)].process;
  }

  int rank_;
  std::array<uint64_t, 2> identity_;
  HandleExchange* handles_;
  bool shareable_;  ///< a peer lives in another process
  Geometry geometry_;
  std::shared_ptr<Arena> own_;
  OperationTimes* calls_;  ///< the own ones, in the own arena
  Waiter waiter_;

  /// Where a peer lives: all that is kept of what it told about itself, as there may be many.
  struct Home {
    uint64_t host;
    uint64_t process;
    int pid;
    uint64_t pid_namespace;
    int device;
  };
  struct Reached {
    std::shared_ptr<Arena> arena;
    std::array<Link, kLanes> links;
    std::string gone{};  ///< why another stands in for the peer's arena; empty: it does not
  };
  std::vector<Home> homes_;
  int unreached_;                                  ///< how many peers have not been reached yet
  bool looked_for_all_ = false;                    ///< once it has been, with a limit of time
  std::vector<std::unique_ptr<Reached>> reached_;  ///< empty for peers that were not
  std::vector<Quiet> quiet_;                       ///< links that are; there is room for all
  std::vector<bool> known_;  ///< by collective, algorithm, root and whether order matters: its peers are reached

  std::vector<std::atomic<const Arena*>> watched_;  ///< those of reached_, for an operation that runs meanwhile
  std::vector<std::atomic<bool>> missed_;           ///< which of these stand in for ranks that are gone
  uint64_t sequence_ = 0;                           ///< of the last collective that was begun
  uint32_t tag_ = 0;                                ///< of the current collective, shifted by 8 bits
  std::chrono::steady_clock::time_point stalled_since_;
  Attendance attendance_;
  struct StoppedPeer {
    int peer;
    std::chrono::steady_clock::time_point since;  ///< when that was seen
  };
  std::optional<StoppedPeer> stopped_;  ///< the first of those that this rank waits for
  DeadPeers dead_peers_;
  std::optional<std::chrono::steady_clock::time_point> on_host_since_;  ///< when one was first seen to wait on the host
  uint64_t stalled_wait_ = 0;                                           ///< which of the waiter's long waits that was
  uint64_t told_groups_ = 0;          ///< of messages in which this rank has told what it waits for
  bool told_waits_ = false;           ///< in the current one
  uint32_t told_waits_inside_ = 0;    ///< of collectives
  uint64_t seen_looks_ = 0;           ///< of the own arena, by awaited()
  std::optional<int> told_wait_for_;  ///< whom it has told that a collective waits for it to send or take something
  CircleSearch circles_;
  Labels labels_;
  bool told_label_ = false;  ///< in the current call
  Occupancy occupancy_;
  std::atomic<std::chrono::milliseconds> timeout_;
  const std::chrono::milliseconds warn_after_;
  uint64_t warned_wait_ = 0;  ///< of which of the waiter's long waits the log has a warning
  const std::function<void(const std::string&)> warned_;

  mutable Turn turn_;
  std::mutex reporting_;
  std::function<void(ncclResult_t, const std::string&)> failed_;  ///< empty once it was called
  bool tells_alone_ = false;  ///< the communicator has ended: of what its graphs meet there is the log alone, once
};

}  // namespace nitinol::cpu
