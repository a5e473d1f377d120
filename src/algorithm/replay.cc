#include "algorithm/replay.h"

namespace nitinol::algorithm {
namespace {

constexpr int kMostRanksInSquare = 1024;

}  // namespace

Replay::Replay(const Program& program, int slots) : program_(program), slots_(slots), ranks_(program.task.ranks) {
  const size_t n = program.task.ranks;
  if (n <= kMostRanksInSquare) square_.assign(n * n, -1);
}

int Replay::connection(int from, int to) {
  const size_t key = static_cast<size_t>(from) * program_.task.ranks + to;
  int& index = square_.empty() ? scattered_.try_emplace(key, -1).first->second : square_[key];
  if (index < 0) {
    index = static_cast<int>(connections_.size());
    connections_.push_back({from, to, 0, 0});
  }
  return index;
}

int Replay::peers_in(Peers peers) const {
  switch (peers) {
    case Peers::kNone: return 0;
    case Peers::kOne: return 1;
    case Peers::kAll: return program_.task.ranks - 1;
    case Peers::kAllBut: return program_.task.ranks - 2;
  }
  return 0;
}

int Replay::incoming_peer(int rank, const Step& step, int index) const {
  if (step.flow.from == Peers::kOne) return step.from;
  return index < rank ? index : index + 1;
}

int Replay::outgoing_peer(int rank, const Step& step, int index) const {
  if (step.flow.to == Peers::kOne) return step.to;
  int distance = index + 1;
  if (step.flow.to == Peers::kAllBut) {
    const int excluded = rank_before(step.to, rank, program_.task.ranks);
    if (distance >= excluded) ++distance;
  }
  return rank_after(rank, distance, program_.task.ranks);
}

bool Replay::can_go_on(int rank) {
  Place& place = ranks_[rank];
  const Step& next = step(rank);
  const int incoming = peers_in(next.flow.from);
  const int all = incoming + peers_in(next.flow.to);
  for (; place.checked < all; ++place.checked) {
    const int index = place.checked < incoming ? connection(incoming_peer(rank, next, place.checked), rank)
                                               : connection(rank, outgoing_peer(rank, next, place.checked - incoming));
    const Connection& queue = connections_[index];
    const uint64_t full = queue.sent - queue.received;
    const bool waits = place.checked < incoming ? full == 0 : full >= static_cast<uint64_t>(slots_);
    if (waits) {
      place.awaited = index;
      return false;
    }
  }
  place.awaited = -1;
  return true;
}

void Replay::collect(int rank) {
  const Step& next = step(rank);
  incoming_.clear();
  outgoing_.clear();
  const int incoming = peers_in(next.flow.from);
  const int outgoing = peers_in(next.flow.to);
  for (int i = 0; i < incoming; ++i) incoming_.push_back(connection(incoming_peer(rank, next, i), rank));
  for (int i = 0; i < outgoing; ++i) outgoing_.push_back(connection(rank, outgoing_peer(rank, next, i)));
}

void Replay::wake(int rank, int connection) {
  if (ranks_[rank].awaited != connection) return;
  ranks_[rank].awaited = -1;
  woken_.push_back(rank);
}

void Replay::finish(int rank) {
  for (const int index : incoming_) {
    ++connections_[index].received;
    wake(connections_[index].from, index);
  }
  for (const int index : outgoing_) {
    ++connections_[index].sent;
    wake(connections_[index].to, index);
  }
  ++ranks_[rank].position;
  ranks_[rank].checked = 0;
}

}  // namespace nitinol::algorithm
