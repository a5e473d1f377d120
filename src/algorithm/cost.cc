#include "algorithm/cost.h"

#include <algorithm>
#include <array>

#include "algorithm/replay.h"

namespace nitinol::algorithm {
namespace {

void add(Cost& sum, const Replay::Event& event) {
  const size_t in = event.incoming.size();
  const size_t out = event.outgoing.size();
  const size_t sources = in + (event.step.flow.own ? 1 : 0);
  const size_t count = event.step.count;
  ++sum.steps;
  sum.messages_sent += out;
  sum.messages_received += in;
  sum.elements_sent += out * count;
  sum.elements_received += in * count;
  sum.elements_reduced += (sources - 1) * count;
  sum.elements_touched += (sources + (event.step.flow.into ? 1 : 0)) * count;
}

void raise(Cost& most, const Cost& other) {
  most.steps = std::max(most.steps, other.steps);
  most.messages_sent = std::max(most.messages_sent, other.messages_sent);
  most.messages_received = std::max(most.messages_received, other.messages_received);
  most.elements_sent = std::max(most.elements_sent, other.elements_sent);
  most.elements_received = std::max(most.elements_received, other.elements_received);
  most.elements_reduced = std::max(most.elements_reduced, other.elements_reduced);
  most.elements_touched = std::max(most.elements_touched, other.elements_touched);
  most.hops = std::max(most.hops, other.hops);
}

}  // namespace

Cost cost(const Program& program) {
  Replay replay(program, kLeastSlots);
  std::vector<Cost> ranks(program.task.ranks);
  std::vector<std::array<size_t, kLeastSlots>> queues;  // hops that led to the message in each slot, per connection
  replay.run([](const std::vector<int>& ready) { return ready.size() - 1; },
             [&](const Replay::Event& event) {
               Cost& mine = ranks[event.rank];
               queues.resize(replay.connections().size());
               for (const int index : event.incoming) {
                 mine.hops = std::max(mine.hops, queues[index][replay.connections()[index].received % kLeastSlots]);
               }
               for (const int index : event.outgoing) {
                 queues[index][replay.connections()[index].sent % kLeastSlots] = mine.hops + 1;
               }
               add(mine, event);
             });
  Cost most;
  for (const Cost& mine : ranks) raise(most, mine);
  return most;
}

}  // namespace nitinol::algorithm
