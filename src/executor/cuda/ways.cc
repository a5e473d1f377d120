#include "executor/cuda/ways.h"

#include <algorithm>
#include <set>

namespace nitinol::cuda {

namespace {

bool has_small_ctas(Collective what, const Limits& limits) {
  if (limits.small_bytes[static_cast<size_t>(what)] > 0) return true;
  const size_t around = std::min(limits.reduce_ring.small_bytes, limits.reduce_ring_back.small_bytes);
  return what == Collective::kReduce && around < SIZE_MAX;
}

bool has_brief(const Sizes& sizes, Protocol protocol) {
  return std::any_of(std::begin(kBriefQueues), std::end(kBriefQueues), [&](Queue queue) {
    return protocol_of_brief(queue) == protocol && sizes.brief_bytes[static_cast<size_t>(queue)] > 0;
  });
}

}  // namespace

Way way_of(const Plan& plan, Queue queue) {
  if (plan.joined) return Way::kJoined;
  if (plan.apart) return Way::kApart;
  if (plan.small) return Way::kSmall;
  return queue == Queue::kLL16 ? Way::kLL16 : way_of(plan.protocol);
}

Ways ways_of(const Sizes& sizes) {
  const Limits& limits = sizes.limits;
  Ways ways;
  for (int collective = 0; collective < kCollectives; ++collective) {
    const auto what = static_cast<Collective>(collective);
    const auto index = static_cast<size_t>(what);
    const auto add_if = [&](bool offered, Way way) {
      if (offered) ways.add(what, way);
    };
    for (int protocol = 0; protocol < kProtocols; ++protocol) {
      const bool is_offered = limits.slot_bytes[static_cast<size_t>(protocol)] > 0;
      add_if(is_offered, way_of(static_cast<Protocol>(protocol)));
    }
    add_if(sizes.without_lines_bytes < SIZE_MAX, Way::kLL16);
    add_if(has_small_ctas(what, limits), Way::kSmall);
    add_if(limits.apart_bytes[index] > 0, Way::kApart);
    add_if(limits.joined_bytes[index] > 0, Way::kJoined);
    for (const Protocol protocol : {Protocol::kLL, Protocol::kLL128}) {
      add_if(has_brief(sizes, protocol), brief_way_of(protocol));
    }
  }
  return ways;
}

namespace {

void add_queues(std::set<Queue>& queues, Collective what, Way way, const Sizes& sizes) {
  switch (way) {
    case Way::kLL:
    case Way::kLL128:
    case Way::kSimple: queues.insert(queue_of(static_cast<Protocol>(way))); break;
    case Way::kLL16: queues.insert(Queue::kLL16); break;
    case Way::kSmall:
      queues.insert(Queue::kMesh);
      if (what == Collective::kReduce || what == Collective::kBroadcast) queues.insert(Queue::kLine);
      break;
    case Way::kApart: queues.insert(reduces(what) ? Queue::kSums : Queue::kSimple); break;
    case Way::kJoined: queues.insert(Queue::kJoined); break;
    case Way::kBriefLL:
    case Way::kBriefLL128:
      for (const Queue queue : kBriefQueues) {
        if (sizes.brief_bytes[static_cast<size_t>(queue)] > 0) queues.insert(queue);
      }
      break;
  }
}

}  // namespace

std::vector<Queue> queues_of(const Sizes& sizes) {
  std::set<Queue> queues;
  const Ways ways = ways_of(sizes);
  for (int collective = 0; collective < kCollectives; ++collective) {
    for (int way = 0; way < kWays; ++way) {
      const auto what = static_cast<Collective>(collective);
      if (ways.has(what, static_cast<Way>(way))) add_queues(queues, what, static_cast<Way>(way), sizes);
    }
  }
  for (int protocol = 0; protocol < kProtocols; ++protocol) {
    if (sizes.limits.slot_bytes[static_cast<size_t>(protocol)] > 0) {
      queues.insert(message_queue_of(static_cast<Protocol>(protocol)));
    }
  }
  return {queues.begin(), queues.end()};
}

}  // namespace nitinol::cuda
