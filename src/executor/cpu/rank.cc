#include "executor/cpu/rank.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/settings.h"
#include "executor/cpu/directory.h"
#include "executor/cpu/peers.h"

namespace nitinol::cpu {

namespace {

constexpr uint64_t kArenaName = 0x6370752d6172656e;  // "cpu-aren"
constexpr std::chrono::seconds kPatienceWithPeers{60};

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
      waiter_(*own_, Patience::of(ranks_on_host(setup.peers, setup.rank),
                                  settings().integer_if_set(Setting::kSpin).value_or(-1))),
      unreached_(geometry_.ranks - 1),
      reached_(setup.peers.size()),
      known_(static_cast<size_t>(kCollectives) * kAlgorithms * setup.peers.size()),
      failed_(std::move(setup.failed)) {
  homes_.reserve(setup.peers.size());
  for (const Peer& peer : setup.peers) homes_.push_back({peer.host, peer.process});
  enter_arena({identity_, rank_}, own_);
  if (shareable_) handles_->offer(kArenaName, [arena = own_] { return arena->share(); });
}

void Rank::close() {
  remove_arena({identity_, rank_});
  if (shareable_) handles_->withdraw(kArenaName);
  const std::lock_guard lock(reporting_);
  failed_ = nullptr;
}

void Rank::abort() {
  own_->header().aborted.store(1);
  own_->wake();
}

void Rank::report(ncclResult_t code, const std::string& sentence) {
  abort();
  std::function<void(ncclResult_t, const std::string&)> tell;
  {
    const std::lock_guard lock(reporting_);
    tell = std::exchange(failed_, nullptr);
  }
  if (tell) tell(code, sentence);
}

void Rank::prepare(const Launch& launch) {
  if (unreached_ == 0) return;
  for (const CollectiveWork& work : launch.collectives) reach_for(work);
  for (const MessageWork& message : launch.messages) reach(message.peer);
}

void Rank::reach_for(const CollectiveWork& work) {
  const auto what = static_cast<size_t>(work.what);
  const auto algorithm = static_cast<size_t>(work.plan.algorithm);
  const size_t index = (what * kAlgorithms + algorithm) * reached_.size() + static_cast<size_t>(work.root);
  if (known_[index]) return;
  const std::vector<bool> needed = peers_of(work.what, work.plan.algorithm, {rank_, ranks(), work.root});
  for (int peer = 0; peer < ranks(); ++peer) {
    if (needed[peer]) reach(peer);
  }
  known_[index] = true;
}

void Rank::reach(int peer) {
  if (peer == rank_ || reached_[peer] != nullptr) return;
  const Home& self = homes_[rank_];
  const Home& other = homes_[peer];
  if (other.host != self.host) {
    fail(ncclInvalidUsage, "rank {} cannot reach rank {}: they run on different hosts, which needs a network transport",
         rank_, peer);
  }
  std::shared_ptr<Arena> arena;
  if (other.process == self.process) {
    arena = find_arena({identity_, peer}, std::chrono::steady_clock::now() + kPatienceWithPeers);
  } else {
    arena = Arena::map(geometry_, peer, identity_, handles_->fetch(peer, kArenaName));
  }
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
  reached_[peer] = std::move(reached);
  --unreached_;
}

}  // namespace nitinol::cpu
