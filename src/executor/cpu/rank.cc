#include "executor/cpu/rank.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/last_error.h"
#include "base/settings.h"
#include "executor/call_words.h"
#include "executor/cpu/directory.h"
#include "executor/cpu/watch.h"

namespace nitinol::cpu {

namespace {

bool any_in_another_process(const std::vector<Peer>& peers, int rank) {
  const Peer& self = peers[rank];
  return std::any_of(peers.begin(), peers.end(), [&](const Peer& peer) { return peer.process != self.process; });
}

int ranks_on_host(const std::vector<Peer>& peers, int rank) {
  const uint64_t host = peers[rank].host;
  return static_cast<int>(
      std::count_if(peers.begin(), peers.end(), [&](const Peer& peer) { return peer.host == host; }));
}

}  // namespace

Rank::Rank(ExecutorSetup setup)
    : rank_(setup.rank),
      identity_(setup.identity),
      handles_(setup.handles),
      shareable_(any_in_another_process(setup.peers, setup.rank)),
      geometry_(Geometry::of(static_cast<int>(setup.peers.size()), setup.buffer_bytes)),
      own_(Arena::create(geometry_, rank_, identity_, shareable_)),
      calls_(&own_->header().calls),
      waiter_(*own_, Patience::of(ranks_on_host(setup.peers, setup.rank),
                                  settings().integer_if_set(Setting::kSpin).value_or(-1))),
      unreached_(geometry_.ranks - 1),
      reached_(setup.peers.size()),
      known_(static_cast<size_t>(kCollectives) * kAlgorithms * setup.peers.size() * 2),
      watched_(setup.peers.size()),
      missed_(setup.peers.size()),
      circles_(setup.rank, geometry_.ranks),
      occupancy_(own_, setup.rank, setup.identity, {setup.idle, setup.program_waits}),
      timeout_(setup.timeout),
      warn_after_(setup.warn_after),
      warned_(std::move(setup.warned)),
      failed_(std::move(setup.failed)) {
  homes_.reserve(setup.peers.size());
  quiet_.reserve(setup.peers.size() * kLanes);
  const Peer& self = setup.peers[static_cast<size_t>(rank_)];
  own_->header().pid = self.pid;
  own_->header().pid_namespace = self.pid_namespace;
  own_->header().device = self.device;
  for (const Peer& peer : setup.peers) {
    homes_.push_back({peer.host, peer.process, peer.pid, peer.pid_namespace, peer.device});
  }
  enter_arena({identity_, rank_}, own_);
  if (shareable_) handles_->offer(kArenaName, [arena = own_] { return arena->share(); });
}

void Rank::ring_for_single_slots() {
  for (const auto& [peer, lane] : quiet_) {
    Link& link = link_to(peer, lane);
    link.is_quiet = false;
    if (link.received % kSlotsToCollect == 0) continue;
    const uint64_t last_if_full = link.received - 1 + kSlots;
    if (link.in->slots[(last_if_full - 1) % kSlots].sequence.load() != last_if_full) continue;
    link.in->consumed.store(link.received);  // again, before a look at who is asleep
    reached_[static_cast<size_t>(peer)]->arena->ring(bell_code(rank_, lane, Event::kFreed));
  }
  quiet_.clear();
}

void Rank::close() {
  circles_.stop();
  remove_arena({identity_, rank_});
  if (shareable_) handles_->withdraw(kArenaName);
  stop_reports();
  const std::lock_guard lock(reporting_);
  tells_alone_ = true;
}

void Rank::abort() {
  own_->header().aborted.store(1);
  own_->wake();
}

/// Operations look whether they are to stop once it is their turn.
bool Rank::is_quiet() {
  const std::unique_lock turn(turn_, std::try_to_lock);
  return turn.owns_lock() && stopped();
}

void Rank::report(ncclResult_t code, const std::string& sentence) {
  abort();
  const std::lock_guard lock(reporting_);  // who stops reports waits for one that is under way
  const auto tell = std::exchange(failed_, nullptr);
  if (tell) return tell(code, sentence);
  if (!std::exchange(tells_alone_, false)) return;
  const std::string alone = behind_the_end_of_its_communicator(sentence);
  set_last_error(alone);
  if (warned_) warned_(alone);
}

void Rank::give_up(const std::exception& thrown) noexcept {
  try {
    const Error error = as_error(thrown);
    return report(error.code(), formatted("rank {}: {}", rank_, error.what()));
  } catch (const std::exception&) {  // now there is no memory
  }
  try {
    report(ncclSystemError, "out of memory");  // short enough to need none
  } catch (const std::exception&) {
  }
}

void Rank::stop_reports() {
  const std::lock_guard lock(reporting_);
  failed_ = nullptr;
}

Executor::DoingsOfPeer Rank::doings_of(int peer) const {
  const Arena* const arena = arena_of(peer);
  if (arena == nullptr) return {};
  return {words_for_doings(look_at(*arena)), arena->header().aborted.load() != 0};
}

void Rank::announce(const CollectiveWork* next) {
  ArenaHeader& header = own_->header();
  header.announced_alone.clear();
  if (next == nullptr) return header.announced.clear();
  header.announced.write(Signature::of(*next, calls_->begun() + 1));
}

void Rank::note_wait(const HeldProgram* held) {
  ArenaHeader& header = own_->header();
  if (header.announced.sequence.load() != 0 && occupancy_.all_through()) {
    header.announced_alone.set(1);
  } else {
    header.announced_alone.clear();
  }
  if (held != nullptr) {
    occupancy_.hold_up_program(*held);
  } else {
    occupancy_.let_program_go();
  }
}

void Rank::wait_on_host(HostCall call, std::span<const int> ranks) {
  for (const int peer : ranks) own_->from(peer, Lane::kCollectives).host_call.store(call);
}

}  // namespace nitinol::cpu
