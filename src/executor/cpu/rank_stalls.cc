// What a rank does that waits for long: it looks whether what it waits for can come at all, tells others that it waits,
// and says in the end who is late.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/process_state.h"
#include "executor/call_words.h"
#include "executor/cpu/rank.h"
#include "executor/cpu/watch.h"

namespace nitinol::cpu {

namespace {

constexpr std::chrono::milliseconds kStallNoticedAfter{100};
constexpr std::chrono::milliseconds kPatienceWithOtherReports{1000};
constexpr std::chrono::milliseconds kPatienceWithOtherCalls{800};
constexpr std::chrono::milliseconds kCirclesSearchedAfter{250};

/// Whether all that its owner has launched is through, as far as that can be known.
bool nothing_to_run(const Arena& arena) {
  const LaunchCounts& launches = arena.header().launches;
  return launches.ended.load() == launches.issued.load() && launches.captured.load() == 0;
}

}  // namespace

/// The first call that the peer made otherwise than this rank, as far back as both remember.
std::optional<Rank::Difference> Rank::first_difference(const Arena& arena) const {
  const uint64_t first = sequence_ > OperationTimes::kKept ? sequence_ - OperationTimes::kKept + 1 : 1;
  for (uint64_t sequence = first; sequence <= sequence_; ++sequence) {
    const auto mine = calls_->find(sequence);
    const auto theirs = arena.header().calls.find(sequence);
    if (mine && theirs && *mine != *theirs) return Difference{*mine, *theirs};
  }
  return std::nullopt;
}

/// A peer has begun another collective as its `sequence_`th or before: reports it, and returns true.
bool Rank::find_mismatch() {
  for (int peer = 0; peer < ranks(); ++peer) {
    const Arena* const arena = arena_of(peer);
    if (arena == nullptr || !first_difference(*arena)) continue;
    report_mismatch(peer);
    return true;
  }
  return false;
}

void Rank::report_mismatch(int peer) {
  const Arena& arena = *arena_of(peer);
  const auto difference = first_difference(arena);
  report(ncclInvalidUsage,
         mismatch_sentence(rank_, (difference ? difference->mine : current()).text(), describe(peer, arena),
                           difference ? difference->theirs.text() : "another operation"));
}

void Rank::report_mismatch(const std::string& mine, int peer, const std::string& theirs) {
  report(ncclInvalidUsage, mismatch_sentence(rank_, mine, describe(peer, *arena_of(peer)), theirs));
}

/// How long the operation has made no progress while this process ran; noticed a moment after that began.
std::chrono::milliseconds Rank::stalled_for() {
  const auto now = std::chrono::steady_clock::now();
  stalled_since_ += attendance_.missed(now);
  const bool moved = std::exchange(stalled_wait_, waiter_.long_waits()) != waiter_.long_waits();
  if (moved) stalled_since_ = now - kStallNoticedAfter;
  return std::chrono::duration_cast<std::chrono::milliseconds>(now - stalled_since_);
}

/// Whether the peer has left, and makes no more calls, while this rank has not: graphs outlive their communicator, so
/// where both have left others' launches of them may still come.
bool Rank::leaves_this_rank(const Arena& peer) const {
  return peer.header().leaving.load(std::memory_order_acquire) != 0 &&
         own_->header().leaving.load(std::memory_order_acquire) == 0;
}

/// A peer has left without having begun the collective that this rank is in: reports it, and returns true.
bool Rank::find_leaver() {
  for (int peer = 0; peer < ranks(); ++peer) {
    const Arena* const arena = arena_of(peer);
    if (arena == nullptr || !leaves_this_rank(*arena)) continue;
    if (arena->header().calls.begun() >= sequence_) continue;
    report(ncclInvalidUsage, leaver_sentence(rank_, current().text(), describe(peer, *arena)));
    return true;
  }
  return false;
}

/// One of the peers has stopped for good: reports it, and returns true. Not before it could have said itself why.
bool Rank::find_stopped(const std::string& call, const std::vector<int>& peers) {
  const auto now = std::chrono::steady_clock::now();
  // The first that was seen: when its time is over others may have stopped, too, but only because of it.
  if (stopped_ && std::find(peers.begin(), peers.end(), stopped_->peer) == peers.end()) stopped_.reset();
  if (!stopped_) {
    const auto found = std::find_if(peers.begin(), peers.end(),
                                    [&](int peer) { return arena_of(peer)->header().aborted.load() != 0; });
    if (found == peers.end()) return false;
    stopped_ = {*found, now};
  }
  if (now - stopped_->since < kPatienceWithOtherReports) return false;
  report(ncclRemoteError, stopped_sentence(rank_, call, describe(stopped_->peer, *arena_of(stopped_->peer))));
  return true;
}

/// The process of one that has not left has died, of these peers if words reach others: reports it, and returns true.
/// Who has left as this rank has, and whose process has ended since, matters where a graph waits for it.
bool Rank::find_dead(const std::string& call, const std::vector<int>& peers) {
  const auto is_awaited = [&](int peer) { return std::find(peers.begin(), peers.end(), peer) != peers.end(); };
  const auto dead = dead_peers_.look(
      ranks(), std::chrono::steady_clock::now(),
      [&](int peer) {
        const bool may_be_gone = has_left(peer) || missed_[static_cast<size_t>(peer)];
        return may_be_gone && !is_awaited(peer) ? ProcessState::kUnknown : state_of(peer);
      },
      is_awaited);
  if (!dead) return false;
  report(ncclRemoteError, dead_sentence(rank_, call, describe(*dead, *arena_of(*dead))));
  return true;
}

bool Rank::has_left(int peer) const {
  const Arena* const arena = arena_of(peer);
  return arena != nullptr && arena->header().leaving.load(std::memory_order_acquire) != 0;
}

/// Of its process, if the peer is known and has not left: not alone, that is, since graphs outlive communicators.
ProcessState Rank::state_of(int peer) const {
  const Arena* const arena = arena_of(peer);
  const Home& home = homes_[static_cast<size_t>(peer)];
  const bool matters = arena != nullptr && home.host == homes_[static_cast<size_t>(rank_)].host &&
                       !in_this_process(peer) && !leaves_this_rank(*arena);
  return matters ? process_state(home.pid, home.pid_namespace) : ProcessState::kUnknown;
}

/// Whether the peer's host waits for this rank to make another call, and there is nothing more for the peer to run
/// before, nor will this rank's host make that call in a moment.
bool Rank::waits_on_host(int peer) const {
  const Arena* const arena = arena_of(peer);
  if (arena == nullptr || arena->from(rank_, Lane::kCollectives).host_call.load() == HostCall::kNone) return false;
  if (own_->from(peer, Lane::kCollectives).host_call.load() != HostCall::kNone) return false;
  return nothing_to_run(*arena) && arena->header().calls.begun() < sequence_;
}

/// A peer waits on the host in another call than the collective that this rank is in: reports it, and returns true. Not
/// at once, since programs may come through that make both calls in another order, though they must not.
bool Rank::find_waiting_on_host() {
  int peer = 0;
  while (peer < ranks() && !waits_on_host(peer)) ++peer;
  if (peer == ranks()) {
    on_host_since_.reset();
    return false;
  }
  const auto now = std::chrono::steady_clock::now();
  if (!on_host_since_) on_host_since_ = now;
  if (now - *on_host_since_ < kPatienceWithOtherCalls) return false;
  const Arena& arena = *arena_of(peer);
  const HostCall call = arena.from(rank_, Lane::kCollectives).host_call.load();
  report(ncclInvalidUsage, mismatch_sentence(rank_, current().text(), describe(peer, arena), name_of(call)));
  return true;
}

/// Peers of whom something is known. Of one that was gone already nothing is, unless this rank waits for it.
std::vector<int> Rank::known_peers() const {
  std::vector<int> peers;
  for (int peer = 0; peer < ranks(); ++peer) {
    const bool matters = !missed_[static_cast<size_t>(peer)] || told_wait_for_ == peer;
    if (arena_of(peer) != nullptr && matters) peers.push_back(peer);
  }
  return peers;
}

/// Those that are not through with the collective that this rank is in.
std::vector<int> Rank::peers_inside_or_late() const {
  std::vector<int> peers = known_peers();
  std::erase_if(peers, [this](int peer) { return arena_of(peer)->header().calls.ended() >= sequence_; });
  return peers;
}

void Rank::on_stall() {
  if (find_mismatch() || find_leaver()) return;
  const auto waited = stalled_for();
  const std::vector<int> peers = peers_inside_or_late();
  if (find_stopped(current().text(), peers) || find_waiting_on_host()) return;
  if (find_dead(current().text(), peers)) return;
  if (waited >= kCirclesSearchedAfter && find_long_circle({current(), {}}, [] { return false; })) return;
  if (!is_to_be_told_of(waited)) return;
  const std::vector<int> known = known_peers();
  std::vector<int> late = known;
  std::erase_if(late, [this](int peer) { return arena_of(peer)->header().calls.begun() >= sequence_; });
  // All have begun it: one is stopped in the middle, or whoever is missing will be named by a rank that sees it.
  tell_of(
      {.waited = waited,
       .peers = late,
       .what = current().text() + " makes",
       .doings = late.empty() ? "all have begun it: " + doings_of_all(known) : "not arrived: " + doings_of_all(late)});
}

bool Rank::is_to_be_told_of(std::chrono::milliseconds waited) const {
  const auto limit = timeout_.load();
  const bool has_been_warned_of = warned_wait_ == waiter_.long_waits();
  return (limit.count() > 0 && waited >= limit) ||
         (warn_after_.count() > 0 && waited >= warn_after_ && !has_been_warned_of);
}

/// As a failure if the time is over, else in the log.
void Rank::tell_of(const Stall& stall) {
  const auto limit = timeout_.load();
  const bool over = limit.count() > 0 && stall.waited >= limit;
  const auto due = over ? limit : warn_after_;
  if (will_say_themselves(stall.peers) && stall.waited < due + kPatienceWithOtherReports) return;
  const std::string sentence =
      delay_sentence(rank_, stall.what, stall.waited, over ? Delay::kOver : Delay::kGoesOn, stall.doings);
  if (over) return report(ncclRemoteError, sentence);
  warned_wait_ = waiter_.long_waits();
  if (warned_) warned_(sentence);
}

std::string Rank::doings_of_all(const std::vector<int>& peers) const {
  std::string all;
  for (const int peer : peers) {
    all += (all.empty() ? "" : "; ") + describe_doings(peer, *arena_of(peer), in_this_process(peer));
  }
  return all;
}

/// Whether all of them are in calls of their own, or on their way into one, held up by others of whom they know more
/// than this rank, or have failed, and word of that is on its way.
bool Rank::will_say_themselves(const std::vector<int>& peers) const {
  return std::all_of(peers.begin(), peers.end(), [this](int peer) {
    const ArenaHeader& header = arena_of(peer)->header();
    const bool in_call =
        header.in_messages.load() != 0 || header.reaching.load() != 0 || header.calls.ended() < header.calls.begun();
    if (header.aborted.load() != 0) return true;
    return in_call &&
           (in_this_process(peer) || process_state(header.pid, header.pid_namespace) == ProcessState::kRunning);
  });
}

/// Others see that this rank cannot leave the collective, also where its result needs nothing from them: they may have
/// no room, or be to pass on or combine a part of what is another's.
void Rank::on_stall_for(PeerWait wait) {
  if (!told_wait_for_) ++told_waits_inside_;
  told_wait_for_ = wait.peer;
  own_->from(wait.peer, Lane::kCollectives).awaited.store(told_waits_inside_ << kAwaitsBits | wait.what);
  own_->header().looks.fetch_add(1);
  on_stall();
}

void Rank::untell_wait() {
  own_->from(*told_wait_for_, Lane::kCollectives).awaited.store(0);
  told_wait_for_.reset();
}

/// The peer has nothing more to run before a collective that needs this rank.
std::string Rank::reason_announced(int peer) const {
  const ArenaHeader& header = arena_of(peer)->header();
  const auto alone = header.announced_alone.look();
  const Signature next = header.announced.read();
  if (next.sequence == 0 || !next.needs(peer, rank_)) return "";
  const bool through = alone ? header.announced_alone.still(*alone) : nothing_to_run(*arena_of(peer));
  return through && header.announced.sequence.load() == next.sequence ? reason_next(next, rank_) : "";
}

/// Why no message that this rank waits for can ever come from the peer or be taken by it; "" if one may. Whatever the
/// peer did before is to be seen by whoever looks at the queues after this.
std::string Rank::reason_why_never(int peer) const {
  const ArenaHeader& header = arena_of(peer)->header();
  if (leaves_this_rank(*arena_of(peer))) return reason_leaving();
  if (std::string reason = reason_announced(peer); !reason.empty()) return reason;
  const uint64_t begun = header.calls.begun();
  if (begun <= sequence_ || header.calls.ended() >= begun) return "";
  const auto signature = header.calls.find(begun);
  const bool awaits_this = arena_of(peer)->from(rank_, Lane::kCollectives).awaited.load() != 0;
  if (!signature || !(awaits_this || signature->needs(peer, rank_))) return "";
  return reason_collective(*signature, rank_);
}

void Rank::on_message_stall(const std::vector<Awaited>& all, const std::function<bool()>& ready) {
  for (const Awaited& awaited : all) {
    const std::string reason = reason_why_never(awaited.peer);
    if (reason.empty() || ready()) continue;
    const std::string who = describe(awaited.peer, *arena_of(awaited.peer));
    return report(ncclInvalidUsage, message_sentence(rank_, awaited.text(), who, reason));
  }
  tell_waits(all);
  const auto waited = stalled_for();
  if (waited >= kCirclesSearchedAfter && (find_circle() || find_long_circle({{}, &all}, ready))) return;
  std::vector<int> peers;
  for (const Awaited& awaited : all) peers.push_back(awaited.peer);
  constexpr const char* kCall = "a group of sends and receives";
  if (find_stopped(kCall, peers) || find_dead(kCall, peers)) return;
  if (!is_to_be_told_of(waited)) return;
  std::string late;
  for (const Awaited& awaited : all) {
    late += (late.empty() ? "" : "; ") + awaited.text() + ", " +
            describe_doings(awaited.peer, *arena_of(awaited.peer), in_this_process(awaited.peer));
  }
  tell_of({.waited = waited, .peers = peers, .what = "sends and receives make", .doings = "waiting for: " + late});
}

/// What is told stays until the group is over; it may become less, never more.
void Rank::tell_waits(const std::vector<Awaited>& all) {
  std::vector<uint32_t> what(static_cast<size_t>(ranks()), 0);
  for (const Awaited& awaited : all) {
    what[static_cast<size_t>(awaited.peer)] = awaited.what;
    own_->from(awaited.peer, Lane::kMessages).receives.write(awaited.receives);
    own_->from(awaited.peer, Lane::kMessages).sends.write(awaited.sends);
  }
  for (int peer = 0; peer < ranks(); ++peer) {
    own_->from(peer, Lane::kMessages).awaited.store(what[static_cast<size_t>(peer)]);
  }
  if (!told_waits_) own_->header().waits_in.store(++told_groups_);
  told_waits_ = true;
  own_->header().looks.fetch_add(1);
}

std::vector<int> Rank::awaited() {
  const uint64_t looks = own_->header().looks.load();
  std::vector<int> awaited;
  if (std::exchange(seen_looks_, looks) == looks) return awaited;
  const bool in_messages = own_->header().waits_in.load() != 0;
  for (int peer = 0; peer < ranks(); ++peer) {
    const bool in_any = own_->from(peer, Lane::kCollectives).awaited.load() != 0 ||
                        (in_messages && own_->from(peer, Lane::kMessages).awaited.load() != 0);
    if (in_any) awaited.push_back(peer);
  }
  return awaited;
}

void Rank::untell_waits() {
  own_->header().waits_in.store(0);
  told_waits_ = false;
}

CircleSearch::Known Rank::known_arenas() const {
  return [this](int peer) { return peer == rank_ ? own_.get() : arena_of(peer); };
}

CircleSearch::Reach Rank::reach_arenas() {
  return [this](int peer) { return arena_to_look_at(peer); };
}

bool Rank::find_circle() {
  const auto circle = circles_.look(known_arenas(), reach_arenas());
  if (circle) report(ncclInvalidUsage, *circle);
  return circle.has_value();
}

/// What the rank waits in for the peer.
std::string Rank::PresentCall::text(int peer) const {
  if (collective.sequence > 0) return collective.text();
  const auto found =
      std::find_if(messages->begin(), messages->end(), [&](const Awaited& each) { return each.peer == peer; });
  return found != messages->end() ? found->text() : "a group of sends and receives";
}

/// One that leads over other communicators, or over waits on the host.
bool Rank::find_long_circle(const PresentCall& call, const std::function<bool()>& ready) {
  const auto others = circles_.labels_of_others(known_arenas(), reach_arenas(), ready);
  if (const auto peer = labels_.came_back(others)) {
    const std::string mine = call.text(*peer);
    const Arena* const theirs = arena_of(*peer);
    const std::string who = theirs != nullptr ? describe(*peer, *theirs) : formatted("rank {}", *peer);
    const std::string reason = circles_.reason_of(*peer, known_arenas());
    const bool on_host = circles_.held_up_on_host(*peer, known_arenas());
    report(ncclInvalidUsage,
           on_host ? host_circle_sentence(rank_, mine, who, reason) : long_circle_sentence(rank_, mine, who, reason));
    return true;
  }
  const uint64_t label = labels_.next(others);
  own_->header().label.set(label);
  const bool in_messages = call.messages != nullptr && !call.messages->empty();
  occupancy_.hold_up_others(label, {call.collective, in_messages ? call.messages->front().message() : PeerMessage{}});
  told_label_ = true;
  return false;
}

void Rank::untell_label() {
  own_->header().label.clear();
  occupancy_.let_others_go();
  labels_.forget();
  told_label_ = false;
}

}  // namespace nitinol::cpu
