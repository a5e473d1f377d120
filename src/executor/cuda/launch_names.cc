#include "executor/cuda/launch_names.h"

namespace nitinol::cuda {

NamedLaunch collectives_of(std::span<const CollectiveWork> works) {
  static_assert(kMaxWorks <= NamedLaunch::kMost);
  NamedLaunch launch;
  for (const CollectiveWork& work : works) {
    if (work.count > 0) launch.add(Signature::of(work, 0));
  }
  return launch;
}

NamedLaunch messages_of(const MessageBatch& batch) {
  NamedLaunch launch;
  for (const Lane& lane : batch.lanes) (lane.sends != 0 ? launch.sends_to : launch.receives_from).add(lane.peer);
  return launch;
}

NamedLaunch messages_of(const MessagePlan& plan) {
  NamedLaunch all;
  for (const std::vector<MessageBatch>& batches : plan) {
    for (const MessageBatch& batch : batches) {
      const NamedLaunch launch = messages_of(batch);
      all.sends_to.add(launch.sends_to);
      all.receives_from.add(launch.receives_from);
    }
  }
  return all;
}

}  // namespace nitinol::cuda
