// How a rank reaches the memory of its peers: for what it is to launch, and to look at what they do.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/process_state.h"
#include "executor/cpu/directory.h"
#include "executor/cpu/peers.h"
#include "executor/cpu/rank.h"
#include "executor/raised_flag.h"

namespace nitinol::cpu {

namespace {

constexpr std::chrono::seconds kPatienceWithPeers{60};

}  // namespace

void Rank::connect() {
  for (int peer = 0; peer < ranks(); ++peer) reach_to_take(peer);
}

/// To be able to say what each of them does. Whoever cannot be had is missed where it is needed.
void Rank::look_for_all() {
  looked_for_all_ = true;
  for (int peer = 0; peer < ranks(); ++peer) {
    if (has_reached(peer)) continue;
    try {
      if (auto arena = arena_to_look_at(peer)) enter_reached(peer, std::move(arena));
    } catch (const Error&) {
    }
  }
}

void Rank::prepare(const Launch& launch) {
  if (unreached_ == 0) return;
  const RaisedFlag on_the_way(&own_->header().reaching);
  if (is_to_look_for_all()) look_for_all();
  for (const CollectiveWork& work : launch.collectives) reach_for(work);
  for (const MessageWork& message : launch.messages) {
    message.is_send() ? reach(message.peer) : reach_to_take(message.peer);
  }
}

bool Rank::is_ready_for(const Launch& launch) {
  if (unreached_ == 0) return true;
  if (is_to_look_for_all()) return false;
  const auto collective_is = [this](const CollectiveWork& work) {
    if (known_[index_of(work)]) return true;
    const std::vector<bool> needed = needed_for(work);
    for (int peer = 0; peer < ranks(); ++peer) {
      if (needed[peer] && !has_reached(peer)) return false;
    }
    known_[index_of(work)] = true;
    return true;
  };
  const auto message_is = [this](const MessageWork& message) {
    return has_reached(message.peer) && !(message.is_send() && is_missed(message.peer));
  };
  return std::all_of(launch.collectives.begin(), launch.collectives.end(), collective_is) &&
         std::all_of(launch.messages.begin(), launch.messages.end(), message_is);
}

/// Its place in known_.
size_t Rank::index_of(const CollectiveWork& work) const {
  const auto what = static_cast<size_t>(work.what);
  const auto algorithm = static_cast<size_t>(work.plan.algorithm);
  const size_t for_root = (what * kAlgorithms + algorithm) * reached_.size() + static_cast<size_t>(work.root);
  return 2 * for_root + (work.any_order() ? 1 : 0);
}

std::vector<bool> Rank::needed_for(const CollectiveWork& work) const {
  return peers_of(work.what, work.plan.algorithm, {rank_, ranks(), work.root, work.any_order()});
}

void Rank::reach_for(const CollectiveWork& work) {
  const size_t index = index_of(work);
  if (known_[index]) return;
  const std::vector<bool> needed = needed_for(work);
  for (int peer = 0; peer < ranks(); ++peer) {
    if (needed[peer]) reach_to_take(peer);
  }
  known_[index] = true;
}

void Rank::reach(int peer) {
  if (has_reached(peer) && is_missed(peer)) fail(ncclRemoteError, "{}", reached_[peer]->gone);
  if (!has_reached(peer)) enter_reached(peer, find_or_map_arena(peer));
}

/// What a peer that is gone has sent lies in the own arena. Who waits for more from it is told so.
void Rank::reach_to_take(int peer) {
  if (has_reached(peer)) return;
  try {
    reach(peer);
  } catch (const Error& found) {
    if (found.code() != ncclRemoteError || stopped() || !handles_->turns_out_gone(peer)) throw;
    auto stand_in = stand_in_for(peer);
    missed_[static_cast<size_t>(peer)] = true;
    enter_reached(peer, std::move(stand_in));
    reached_[peer]->gone = found.what();
    ++unreached_;  // it is asked for once more by whoever sends
  }
}

bool Rank::is_missed(int peer) const { return missed_[static_cast<size_t>(peer)]; }

/// An arena in which nobody lives.
std::shared_ptr<Arena> Rank::stand_in_for(int peer) const {
  const Home& home = homes_[peer];
  auto arena = Arena::create(geometry_, peer, identity_, false);
  ArenaHeader& header = arena->header();
  header.pid = home.pid;
  header.pid_namespace = home.pid_namespace;
  header.device = home.device;
  header.aborted = 1;
  return arena;
}

std::shared_ptr<Arena> Rank::find_or_map_arena(int peer) {
  const Home& self = homes_[rank_];
  const Home& other = homes_[peer];
  if (other.host != self.host) {
    fail(ncclInvalidUsage, "rank {} cannot reach rank {}: they run on different hosts, which needs a network transport",
         rank_, peer);
  }
  if (other.process == self.process) {
    const auto deadline = std::chrono::steady_clock::now() + kPatienceWithPeers;
    return find_arena({identity_, peer}, deadline, [this] { return stopped(); });
  }
  return Arena::map(geometry_, peer, identity_, handles_->fetch(peer, kArenaName));
}

void Rank::enter_reached(int peer, std::shared_ptr<Arena> arena) {
  auto reached = std::make_unique<Reached>();
  for (int index = 0; index < kLanes; ++index) {
    const auto lane = static_cast<Lane>(index);
    Link& link = reached->links[static_cast<size_t>(index)];
    link.out = &arena->from(rank_, lane);
    link.out_data = arena->data_from(rank_, lane);
    link.in = &own_->from(peer, lane);
    link.in_data = own_->data_from(peer, lane);
  }
  reached->arena = std::move(arena);
  watched_[static_cast<size_t>(peer)].store(reached->arena.get(), std::memory_order_release);
  reached_[peer] = std::move(reached);
  --unreached_;
}

/// Of a peer that was not reached. Not for long: null if it cannot be had at once. On any thread.
std::shared_ptr<Arena> Rank::arena_to_look_at(int peer) {
  const Home& other = homes_[static_cast<size_t>(peer)];
  if (other.host != homes_[static_cast<size_t>(rank_)].host) return nullptr;
  if (in_this_process(peer)) return find_arena({identity_, peer}, std::chrono::steady_clock::now());
  if (process_state(other.pid, other.pid_namespace) == ProcessState::kStopped) return nullptr;  // would not answer
  return Arena::map(geometry_, peer, identity_, handles_->fetch(peer, kArenaName));
}

}  // namespace nitinol::cpu
