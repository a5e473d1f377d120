#include "executor/simulate/simulator.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "algorithm/replay.h"
#include "executor/simulate/ports.h"

namespace nitinol::simulate {
namespace {

using algorithm::Program;
using algorithm::Replay;

/// One channel's replay with its clocks.
class Channel {
 public:
  Channel(const Program& program, const TopologyModel& model, Ports& ports)
      : model_(model),
        ports_(ports),
        replay_(program, model.slots),
        clocks_(program.task.ranks, time_of(model.start_us)) {}

  /// Whether the rank's next transfer can happen, and from when on.
  bool next_start(int rank, Time& start) {
    if (replay_.ended(rank) || !replay_.can_go_on(rank)) return false;
    slots_.resize(replay_.connections().size() * model_.slots);
    start = clocks_[rank];
    replay_.look(rank, [&](const Replay::Event& event) {
      for (const int index : event.incoming) start = std::max(start, incoming_slot(index).filled);
      for (const int index : event.outgoing) start = std::max(start, outgoing_slot(index).freed);
    });
    return true;
  }

  /// Lets the rank's next transfer happen, which starts at `start`.
  void go_on(int rank, Time start) {
    replay_.go_on(rank, [&](const Replay::Event& event) { clocks_[rank] = transfer(event, start); });
  }

  std::vector<int>& woken() { return replay_.woken(); }
  Time end() const { return *std::max_element(clocks_.begin(), clocks_.end()); }

 private:
  struct Slot {
    Time filled = 0;  ///< when the receiver sees the message
    Time freed = 0;   ///< when the sender sees that it is taken
  };
  Slot& incoming_slot(int index) {
    return slots_[static_cast<size_t>(index) * model_.slots + replay_.connections()[index].received % model_.slots];
  }
  Slot& outgoing_slot(int index) {
    return slots_[static_cast<size_t>(index) * model_.slots + replay_.connections()[index].sent % model_.slots];
  }

  Time transfer(const Replay::Event& event, Time start) {
    const double bytes = static_cast<double>(event.step.count * model_.element_bytes);
    const size_t passes = event.incoming.size() + (event.step.flow.own ? 1 : 0) + (event.step.flow.into ? 1 : 0);
    const Time ready =
        start + time_of(model_.step_us) + time_of(static_cast<double>(passes) * bytes, model_.memory_bytes_per_us);
    Time end = ready;
    for (const int index : event.outgoing) {
      const int to = replay_.connections()[index].to;
      const Ports::Passage passage = ports_.pass({event.rank, to, end, bytes}, start);
      outgoing_slot(index).filled = passage.arrived;
      end = passage.left;
    }
    for (const int index : event.incoming) {
      incoming_slot(index).freed = end + ports_.latency(event.rank, replay_.connections()[index].from);
    }
    return end;
  }

  const TopologyModel& model_;
  Ports& ports_;
  Replay replay_;
  std::vector<Time> clocks_;
  std::vector<Slot> slots_;  ///< connection * slots + message % slots
};

/// A transfer that can happen. Earliest first; ties by channel and rank, so that the order is always the same.
struct Candidate {
  Time start = 0;
  int channel = 0;
  int rank = 0;
  bool operator>(const Candidate& other) const {
    if (start != other.start) return start > other.start;
    return channel != other.channel ? channel > other.channel : rank > other.rank;
  }
};

}  // namespace

double simulate(const std::vector<Program>& programs, const TopologyModel& model) {
  if (programs.empty()) return model.start_us;
  const int ranks = programs.front().task.ranks;
  Ports ports(ranks, model);
  std::vector<Channel> channels;
  channels.reserve(programs.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto consider = [&](int channel, int rank) {
    Candidate candidate{0, channel, rank};
    if (channels[channel].next_start(rank, candidate.start)) candidates.push(candidate);
  };
  for (const Program& program : programs) channels.emplace_back(program, model, ports);
  for (size_t channel = 0; channel < channels.size(); ++channel) {
    for (int rank = 0; rank < ranks; ++rank) consider(static_cast<int>(channel), rank);
  }
  std::vector<int> woken;
  while (!candidates.empty()) {
    const Candidate first = candidates.top();
    candidates.pop();
    Channel& channel = channels[first.channel];
    channel.go_on(first.rank, first.start);
    woken.assign(1, first.rank);
    woken.insert(woken.end(), channel.woken().begin(), channel.woken().end());
    channel.woken().clear();
    for (const int rank : woken) consider(first.channel, rank);
  }
  Time end = time_of(model.start_us);
  for (const Channel& channel : channels) end = std::max(end, channel.end());
  return microseconds(end);
}

double simulate(const Program& program, const TopologyModel& model) {
  return simulate(std::vector<Program>{program}, model);
}

}  // namespace nitinol::simulate
