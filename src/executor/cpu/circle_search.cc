#include "executor/cpu/circle_search.h"

#include <algorithm>
#include <system_error>

#include "base/blocked_signals.h"
#include "base/error.h"
#include "executor/cpu/watch.h"

namespace nitinol::cpu {

/// Of one that is known, or was reached for this.
const Arena* CircleSearch::arena(int rank, const Known& known) const {
  const Arena* const arena = known(rank);
  if (arena != nullptr || !reached_all_.load(std::memory_order_acquire)) return arena;
  return reached_[static_cast<size_t>(rank)].get();
}

CircleSearch::Call CircleSearch::call_of(const Arena& arena) {
  const ArenaHeader& header = arena.header();
  if (const uint64_t group = header.waits_in.load()) return {Call::What::kMessages, group, header.looks.load()};
  const uint64_t begun = header.calls.begun();
  if (header.calls.ended() >= begun) return {};
  const auto collective = header.calls.find(begun);
  return collective ? Call{Call::What::kCollective, begun, 0, *collective} : Call{};
}

/// In a collective: 0 if the rank tells nothing of the peer.
uint32_t CircleSearch::awaited_now(const Arena& mine, int peer) {
  return mine.from(peer, Lane::kCollectives).awaited.load();
}

/// Whether the call that the rank is in needs the peer, whatever that does.
bool CircleSearch::needs(int rank, const Arena& mine, int peer) {
  const Call call = call_of(mine);
  switch (call.what) {
    case Call::What::kNone: return false;
    case Call::What::kMessages: return mine.from(peer, Lane::kMessages).awaited.load() != 0;
    case Call::What::kCollective: return call.collective.needs(rank, peer) || awaited_now(mine, peer) != 0;
  }
  return false;
}

/// Whether the present call of `rank` can end only after that of `peer`. What the peer says is read first: whatever it
/// did before that can be seen by the rank.
std::optional<CircleSearch::Wait> CircleSearch::wait_for(int rank, int peer, const Known& known) const {
  const Arena* const mine = arena(rank, known);
  const Arena* const theirs = arena(peer, known);
  if (mine == nullptr || theirs == nullptr || rank == peer) return std::nullopt;
  const Call call = call_of(*mine);
  const Call other = call_of(*theirs);
  if (call.what == Call::What::kNone || other.what == Call::What::kNone) return std::nullopt;
  if (call.what == Call::What::kCollective) {
    const bool late = theirs->header().calls.begun() < call.number;
    const bool in_any_case = call.collective.needs(rank, peer);
    const uint32_t told = awaited_now(*mine, peer);
    const bool waits = in_any_case || told != 0;
    if (!late || !waits || !call_of(*mine).same(call)) return std::nullopt;
    return Wait{rank, call, peer, Waiting::kCollective, !in_any_case, false, told};
  }
  const uint32_t awaited = mine->from(peer, Lane::kMessages).awaited.load();
  uint32_t meets = 0;
  if (other.what == Call::What::kMessages) {
    const uint32_t does = theirs->from(rank, Lane::kMessages).awaited.load();
    if ((does & kAwaitsFreed) != 0) meets |= kAwaitsFilled;
    if ((does & kAwaitsFilled) != 0) meets |= kAwaitsFreed;
  }
  const uint32_t in_vain = awaited & ~meets;
  if (!call_of(*mine).same(call) || !call_of(*theirs).same(other)) return std::nullopt;
  if ((in_vain & kAwaitsFilled) != 0) return Wait{rank, call, peer, Waiting::kReceive};
  if ((in_vain & kAwaitsFreed) != 0) return Wait{rank, call, peer, Waiting::kSend};
  return std::nullopt;
}

/// Whether `rank` waits in a collective for `peer` to go on in the same.
std::optional<CircleSearch::Wait> CircleSearch::wait_inside(int rank, int peer, const Known& known) const {
  const Arena* const mine = arena(rank, known);
  const Arena* const theirs = arena(peer, known);
  if (mine == nullptr || theirs == nullptr || rank == peer) return std::nullopt;
  const Call call = call_of(*mine);
  const uint32_t told = awaited_now(*mine, peer);
  if (call.what != Call::What::kCollective || told == 0) return std::nullopt;
  if (!call_of(*theirs).same(call) || !call_of(*mine).same(call)) return std::nullopt;
  return Wait{rank, call, peer, Waiting::kCollective, true, true, told};
}

/// Those of this rank and of all for whom one waits already; `unknown`: some are waited for that are not known.
CircleSearch::Waits CircleSearch::find_waits(const Known& known, bool& unknown) const {
  Waits waits(static_cast<size_t>(ranks_));
  std::vector<bool> met(static_cast<size_t>(ranks_), false);
  std::vector<int> trail{rank_};
  met[static_cast<size_t>(rank_)] = true;
  for (size_t i = 0; i < trail.size(); ++i) {
    const int rank = trail[i];
    for (int peer = 0; peer < ranks_; ++peer) {
      if (!needs(rank, *arena(rank, known), peer)) continue;
      if (arena(peer, known) == nullptr) unknown = true;
      auto wait = wait_for(rank, peer, known);
      if (!wait) wait = wait_inside(rank, peer, known);
      if (!wait) continue;
      waits[static_cast<size_t>(rank)].push_back(*wait);
      if (!met[static_cast<size_t>(peer)]) trail.push_back(peer);
      met[static_cast<size_t>(peer)] = true;
    }
  }
  return waits;
}

/// What was told just now holds up whoever tells it only as long as the next one tells so, too.
bool CircleSearch::may_follow(const Wait& wait, const std::vector<Wait>& trail) {
  const bool any = trail.empty() || trail.back().told == 0;
  return any || wait.told != 0 || wait.call.what != Call::What::kCollective;
}

/// Leaves out who waits for nobody until all that are left wait for each other; then follows them from one to the next.
std::vector<CircleSearch::Wait> CircleSearch::find_circle(const Waits& all, int first) {
  Waits waits = all;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::vector<Wait>& of_one : waits) {
      const size_t gone =
          std::erase_if(of_one, [&](const Wait& wait) { return waits[static_cast<size_t>(wait.peer)].empty(); });
      changed = changed || gone > 0;
    }
  }
  std::vector<Wait> trail;
  for (int rank = first; !waits[static_cast<size_t>(rank)].empty();) {
    const auto met = std::find_if(trail.begin(), trail.end(), [&](const Wait& wait) { return wait.rank == rank; });
    if (met != trail.end()) {
      if (!may_follow(*met, trail)) return {};
      std::vector<Wait> circle(met, trail.end());
      const auto lowest =
          std::min_element(circle.begin(), circle.end(), [](const Wait& a, const Wait& b) { return a.rank < b.rank; });
      std::rotate(circle.begin(), lowest, circle.end());
      return circle;
    }
    const std::vector<Wait>& of_one = waits[static_cast<size_t>(rank)];
    const auto next =
        std::find_if(of_one.begin(), of_one.end(), [&](const Wait& wait) { return may_follow(wait, trail); });
    if (next == of_one.end()) return {};
    trail.push_back(*next);
    rank = next->peer;
  }
  return {};
}

bool CircleSearch::still_there(const Known& known) const {
  return std::all_of(circle_.begin(), circle_.end(), [&](const Wait& wait) {
    const Arena* const arena = this->arena(wait.rank, known);
    return arena != nullptr && call_of(*arena).same(wait.call);
  });
}

/// As it was, and the same one if it was told.
bool CircleSearch::stays(const Wait& wait, const Known& known) const {
  const auto now = wait.inside ? wait_inside(wait.rank, wait.peer, known) : wait_for(wait.rank, wait.peer, known);
  return now && now->waiting == wait.waiting && (wait.told == 0 || now->told == wait.told);
}

/// From now on, when all are known to be in their calls.
void CircleSearch::note_looks(const Known& known) {
  for (Wait& wait : circle_) wait.call.looks = arena(wait.rank, known)->header().looks.load();
}

/// Everybody who looks has seen since the first look that nothing has come: twice, as the first may have begun before.
bool CircleSearch::looked_again(const Known& known) const {
  return std::all_of(circle_.begin(), circle_.end(), [&](const Wait& wait) {
    return !wait.by_looks || arena(wait.rank, known)->header().looks.load() - wait.call.looks >= 2;
  });
}

std::string CircleSearch::text_of(const Wait& wait, const Arena& arena) {
  if (wait.waiting == Waiting::kCollective) return wait.call.collective.text();
  const Connection& queue = arena.from(wait.peer, Lane::kMessages);
  const bool sends = wait.waiting == Waiting::kSend;
  return (sends ? queue.sends : queue.receives).read().text(sends, wait.peer);
}

std::string CircleSearch::sentence(const Known& known) const {
  std::vector<CircleStep> steps;
  for (const Wait& wait : circle_) {
    const Arena& arena = *this->arena(wait.rank, known);
    steps.push_back({describe(wait.rank, arena), wait.waiting, text_of(wait, arena)});
  }
  return circle_sentence(steps);
}

std::optional<std::string> CircleSearch::look(const Known& known, const Reach& reach) {
  if (!circle_.empty() && still_there(known)) {
    if (!looked_again(known)) return std::nullopt;
    const bool all = std::all_of(circle_.begin(), circle_.end(), [&](const Wait& wait) { return stays(wait, known); });
    if (all && still_there(known)) return sentence(known);
  }
  bool unknown = false;
  const Waits waits = find_waits(known, unknown);
  circle_ = find_circle(waits, rank_);
  if (circle_.empty() && unknown) reach_all(known, reach);
  note_looks(known);
  if (!still_there(known)) circle_.clear();
  return std::nullopt;
}

/// Whether the rank's present call needs one that the peer, which is in none, has still to begin.
bool CircleSearch::waits_for_next_call_of(int peer, const Known& known) const {
  const Arena& mine = *arena(rank_, known);
  const ArenaHeader& theirs = arena(peer, known)->header();
  const Call call = call_of(mine);
  const uint64_t begun = theirs.calls.begun();
  if (theirs.calls.ended() < begun || theirs.in_messages.load() != 0 || !needs(rank_, mine, peer)) return false;
  return call.what == Call::What::kMessages || begun < call.number;
}

std::vector<Labels::Other> CircleSearch::labels_of_others(const Known& known, const Reach& reach,
                                                          const std::function<bool()>& ready) {
  std::vector<Labels::Other> others;
  bool unknown = false;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_ || !needs(rank_, *arena(rank_, known), peer)) continue;
    const Arena* const theirs = arena(peer, known);
    unknown = unknown || theirs == nullptr;
    if (theirs == nullptr) continue;
    // A label is looked at first, and must still stand after it was seen that its owner is waited for.
    const SharedLabel& own = theirs->header().label;
    const SharedLabel& holder = theirs->header().holder.label;
    const auto in_call = own.look();
    if (in_call && wait_for(rank_, peer, known) && !ready() && own.still(*in_call)) {
      others.push_back({peer, in_call->label, false});
      continue;
    }
    const auto held = holder.look();
    if (held && waits_for_next_call_of(peer, known) && !ready() && holder.still(*held)) {
      others.push_back({peer, held->label, true});
    }
  }
  if (unknown) reach_all(known, reach);
  return others;
}

/// With the first message for which the rank tells that it waits.
std::string CircleSearch::reason_messages(const Arena& arena) const {
  for (int peer = 0; peer < ranks_; ++peer) {
    const Connection& queue = arena.from(peer, Lane::kMessages);
    const uint32_t awaited = queue.awaited.load();
    if (awaited == 0) continue;
    const bool sends = (awaited & kAwaitsFilled) == 0;
    return formatted("which is in {}", (sends ? queue.sends : queue.receives).read().text(sends, peer));
  }
  return "which is in a group of sends and receives";
}

std::string CircleSearch::reason_of(int peer, const Known& known) const {
  const Arena& theirs = *arena(peer, known);
  const Call call = call_of(theirs);
  if (call.what == Call::What::kMessages) return reason_messages(theirs);
  if (call.what == Call::What::kCollective) return formatted("which is in {}", call.collective.text());
  const Holder holder = theirs.header().holder.holder();
  return theirs.header().held_on_host.load() != 0 ? reason_on_host(holder) : reason_held_up(holder);
}

bool CircleSearch::held_up_on_host(int peer, const Known& known) const {
  const Arena& theirs = *arena(peer, known);
  return call_of(theirs).what == Call::What::kNone && theirs.header().held_on_host.load() != 0;
}

void CircleSearch::reach_all(const Known& known, const Reach& reach) {
  const std::lock_guard lock(mutex_);
  if (reaches_ || stopped_.load()) return;
  reaches_ = true;
  reached_.resize(static_cast<size_t>(ranks_));
  std::vector<int> missing;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (known(rank) == nullptr) missing.push_back(rank);
  }
  const auto work = [this, missing, reach] {
    for (const int rank : missing) {
      if (stopped_.load()) return;
      try {
        reached_[static_cast<size_t>(rank)] = reach(rank);
      } catch (const std::exception&) {  // then nothing is found that leads over it
      }
    }
    reached_all_.store(true, std::memory_order_release);
  };
  try {
    const BlockedSignals blocked;
    reaching_ = std::thread(work);
  } catch (const std::system_error&) {  // none to be had
  }
}

void CircleSearch::stop() {
  stopped_.store(true);
  const std::lock_guard lock(mutex_);
  if (reaching_.joinable()) reaching_.join();
}

}  // namespace nitinol::cpu
