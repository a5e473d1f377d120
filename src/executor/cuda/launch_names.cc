#include "executor/cuda/launch_names.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "device/guards.h"

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

std::optional<NamedLaunch> messages_of(const MessagePlan& plan) {
  const auto has_several = [](const std::vector<MessageBatch>& batches) { return batches.size() > 1; };
  if (std::any_of(plan.begin(), plan.end(), has_several)) return std::nullopt;
  NamedLaunch all;
  all.beside_others = true;
  for (const std::vector<MessageBatch>& batches : plan) {
    for (const MessageBatch& batch : batches) {
      const NamedLaunch launch = messages_of(batch);
      all.sends_to.add(launch.sends_to);
      all.receives_from.add(launch.receives_from);
    }
  }
  return all;
}

bool are_at_hand(const MessageBatch& batch) {
  const RelaxedCaptureGuard relaxed;
  return std::all_of(batch.messages.begin(), batch.messages.end(), [](const Message& message) {
    cudaPointerAttributes found{};
    if (cudaPointerGetAttributes(&found, message.buffer) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // nobody else is to meet it
      return false;
    }
    return found.type == cudaMemoryTypeDevice || found.type == cudaMemoryTypeHost;
  });
}

bool are_at_hand(const MessagePlan& plan) {
  return std::all_of(plan.begin(), plan.end(), [](const std::vector<MessageBatch>& batches) {
    return std::all_of(batches.begin(), batches.end(), [](const MessageBatch& batch) { return are_at_hand(batch); });
  });
}

}  // namespace nitinol::cuda
