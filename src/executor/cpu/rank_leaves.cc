// How a rank leaves, and what it finds out then about calls that did not match and held nobody up.
#include <algorithm>
#include <mutex>

#include "executor/call_words.h"
#include "executor/cpu/rank.h"
#include "executor/cpu/watch.h"

namespace nitinol::cpu {
namespace {

/// Of messages that lie in a queue, in which each piece notes what it is of.
struct Unreceived {
  MessageSignature first{};  ///< that has bytes; those of none hold nobody up and may be left out
  uint64_t last = 0;         ///< the number of the last
  bool any() const { return first.number != 0; }
};

void note_piece(const Connection& queue, uint64_t piece, Unreceived& unreceived) {
  const MessageSignature message = queue.notes[piece % kSlots].read();
  unreceived.last = message.number;
  if (!unreceived.any() && message.bytes > 0) unreceived.first = message;
}

/// Collectives of no elements may be left out.
bool moves_anything(const std::optional<Signature>& collective) { return collective && collective->count > 0; }

/// The last that moved anything; number 0: none is known.
Signature last_of(const OperationTimes& calls) {
  const uint64_t last = calls.begun();
  for (uint64_t back = 0; back < std::min<uint64_t>(last, OperationTimes::kKept); ++back) {
    const auto collective = calls.find(last - back);
    if (moves_anything(collective)) return *collective;
  }
  return {};
}

/// The first after so many that moved anything, as far as that is remembered.
std::optional<Signature> first_after(const OperationTimes& calls, uint64_t count) {
  const uint64_t last = calls.begun();
  const uint64_t kept = last - std::min<uint64_t>(last, OperationTimes::kKept);
  for (uint64_t before = std::max(count, kept); before < last; ++before) {
    const auto collective = calls.find(before + 1);
    if (moves_anything(collective)) return collective;
  }
  return std::nullopt;
}

bool has_settled(const Arena& arena) { return arena.header().settled.load(std::memory_order_acquire) != 0; }

/// What one of two ranks has called behind the other's last collective. `theirs` is null if this rank has not reached
/// the peer.
std::optional<std::string> called_alone(int rank, const Arena& mine, int peer, const Arena* theirs) {
  if (!has_settled(mine) || (theirs != nullptr && !has_settled(*theirs))) return std::nullopt;
  const OperationTimes& calls = mine.header().calls;
  std::optional<Signature> extra;
  if (theirs != nullptr) {
    extra = first_after(calls, theirs->header().calls.begun());
    if (extra) return leaver_sentence(rank, extra->text(), describe(peer, *theirs));
    extra = first_after(theirs->header().calls, calls.begun());
  } else {
    const Signature last = mine.from(peer, Lane::kCollectives).peers_last.read();
    if (last.sequence > calls.begun()) extra = last;
  }
  if (extra) return leaver_sentence(peer, extra->text(), describe(rank, mine));
  return std::nullopt;
}

}  // namespace

void Rank::leave() {
  // Nobody knows when graphs run, and what they may still receive, nor what one that was stopped would have done.
  if (own_->header().launches.captured.load() == 0 && !stopped()) {
    const std::lock_guard lock(turn_);
    const Signature last = last_of(*calls_);
    for (int peer = 0; peer < ranks(); ++peer) {
      if (reached_[static_cast<size_t>(peer)] == nullptr) continue;
      const Link& messages = link_to(peer, Lane::kMessages);
      messages.in->consumed.store(messages.received);
      link_to(peer, Lane::kCollectives).out->peers_last.write(last);
    }
    own_->header().settled.store(1, std::memory_order_release);
  }
  own_->header().leaving.store(1, std::memory_order_release);
}

/// What others need of a rank is what it sends, and that it takes what they send, though it will not: both are to hear
/// of that. What graphs have sent or wait for is taken by others' graphs, which may be launched later, so of ranks that
/// have some it is not known.
bool Rank::is_needed() const {
  if (own_->header().launches.captured.load() != 0) return false;
  const std::unique_lock lock(turn_, std::try_to_lock);
  if (!lock) return true;
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank_) continue;
    const auto& reached = reached_[static_cast<size_t>(peer)];
    for (int index = 0; index < kLanes; ++index) {
      const Link link = reached != nullptr ? reached->links[static_cast<size_t>(index)] : Link{};
      if (link.out != nullptr && link.out->consumed.load() < link.sent) return true;
      const Connection& from = own_->from(peer, static_cast<Lane>(index));
      if (from.slots[link.received % kSlots].sequence.load() == link.received + 1) return true;
    }
  }
  return false;
}

/// Whoever is back from ending its communicator may have launched a graph of it again, which waits for ranks that this
/// very thread still holds up: it is not waited for.
std::optional<std::string> Rank::difference_in_the_end() const {
  const std::unique_lock lock(turn_, std::try_to_lock);
  if (!lock) return std::nullopt;
  for (int peer = 0; peer < ranks(); ++peer) {
    const Arena* const arena = arena_of(peer);
    const auto found = arena != nullptr ? first_difference(*arena) : std::nullopt;
    if (found) return mismatch_sentence(rank_, found->mine.text(), describe(peer, *arena), found->theirs.text());
  }
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer == rank_) continue;
    if (auto sentence = sent_in_vain(peer)) return sentence;
    if (auto sentence = never_received(peer)) return sentence;
    if (auto sentence = called_alone(rank_, *own_, peer, arena_of(peer))) return sentence;
  }
  return std::nullopt;
}

/// What this rank has sent to the peer, and it has not taken.
std::optional<std::string> Rank::sent_in_vain(int peer) const {
  const Arena* const arena = arena_of(peer);
  if (arena == nullptr || !has_settled(*arena)) return std::nullopt;
  const Link& link = reached_[static_cast<size_t>(peer)]->links[static_cast<size_t>(Lane::kMessages)];
  const uint64_t kept = link.sent > kSlots ? link.sent - kSlots : 0;
  Unreceived unreceived;
  for (uint64_t piece = std::max(link.out->consumed.load(), kept); piece < link.sent; ++piece) {
    note_piece(*link.out, piece, unreceived);
  }
  if (!unreceived.any()) return std::nullopt;
  return unreceived_sentence(describe(rank_, *own_), describe(peer, *arena), peer, link.messages_out, unreceived.first);
}

/// What the peer has sent, and this rank has not taken: perhaps without ever having reached it.
std::optional<std::string> Rank::never_received(int peer) const {
  if (!has_settled(*own_)) return std::nullopt;
  const Connection& queue = own_->from(peer, Lane::kMessages);
  const auto& reached = reached_[static_cast<size_t>(peer)];
  const uint64_t received = reached ? reached->links[static_cast<size_t>(Lane::kMessages)].received : 0;
  Unreceived unreceived;
  for (uint64_t piece = received; piece < received + kSlots; ++piece) {
    if (queue.slots[piece % kSlots].sequence.load() != piece + 1) break;
    note_piece(queue, piece, unreceived);
  }
  if (!unreceived.any()) return std::nullopt;
  const Arena* const arena = arena_of(peer);
  const std::string sender = arena != nullptr ? describe(peer, *arena) : formatted("rank {}", peer);
  return unreceived_sentence(sender, describe(rank_, *own_), rank_, unreceived.last, unreceived.first);
}

}  // namespace nitinol::cpu
