#include "algorithm/replay.h"

namespace nitinol::algorithm {
namespace {

constexpr int kMostRanksInSquare = 1024;

}  // namespace

Replay::Replay(const Program& program, int slots) : program_(program), slots_(slots), processes_(program.processes()) {
  const size_t n = program.task.ranks;
  if (n <= kMostRanksInSquare) square_.assign(n * n * program.streams, -1);
}

int Replay::connection(int from, int to, int stream) {
  const size_t pair = static_cast<size_t>(from) * program_.task.ranks + to;
  const size_t key = pair * program_.streams + stream;
  int& index = square_.empty() ? scattered_.try_emplace(key, -1).first->second : square_[key];
  if (index < 0) {
    index = static_cast<int>(connections_.size());
    connections_.push_back({from, to, stream, 0, 0});
    sleepers_.push_back({});
  }
  return index;
}

int Replay::incoming(int process, const Step& step, int index) {
  const int rank = program_.rank_of(process);
  return connection(incoming_peer(step, rank, index), rank, step.stream_in);
}

int Replay::outgoing(int process, const Step& step, int index) {
  const int rank = program_.rank_of(process);
  return connection(rank, outgoing_peer(step, rank, program_.task.ranks, index), step.stream_out);
}

bool Replay::can_go_on(int process) {
  Place& place = processes_[process];
  const Step& next = step(process);
  const int sources = peers_in(next.flow.from, program_.task.ranks);
  const int all = sources + peers_in(next.flow.to, program_.task.ranks);
  for (; place.checked < all; ++place.checked) {
    const bool receives = place.checked < sources;
    const int index =
        receives ? incoming(process, next, place.checked) : outgoing(process, next, place.checked - sources);
    const Connection& queue = connections_[index];
    const uint64_t full = queue.sent - queue.received;
    const bool waits = receives ? full == 0 : full >= static_cast<uint64_t>(slots_);
    if (waits) {
      place.awaited = index;
      (receives ? sleepers_[index].receiver : sleepers_[index].sender) = process;
      return false;
    }
  }
  place.awaited = -1;
  return true;
}

void Replay::collect(int process) {
  const Step& next = step(process);
  incoming_.clear();
  outgoing_.clear();
  const int sources = peers_in(next.flow.from, program_.task.ranks);
  const int sinks = peers_in(next.flow.to, program_.task.ranks);
  for (int i = 0; i < sources; ++i) incoming_.push_back(incoming(process, next, i));
  for (int i = 0; i < sinks; ++i) outgoing_.push_back(outgoing(process, next, i));
}

void Replay::wake(int& sleeper) {
  if (sleeper < 0) return;
  processes_[sleeper].awaited = -1;
  woken_.push_back(sleeper);
  sleeper = -1;
}

void Replay::finish(int process) {
  for (const int index : incoming_) {
    ++connections_[index].received;
    wake(sleepers_[index].sender);
  }
  for (const int index : outgoing_) {
    ++connections_[index].sent;
    wake(sleepers_[index].receiver);
  }
  ++processes_[process].position;
  processes_[process].checked = 0;
}

}  // namespace nitinol::algorithm
