#include "executor/cuda/buffers_at_hand.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "device/guards.h"

namespace nitinol::cuda {

bool BuffersAtHand::has(const void* buffer) {
  constexpr uintptr_t kSpread = 0x9e3779b97f4a7c15;  // the golden ratio: buffers are often far apart by powers of two
  const void*& kept = kept_[(reinterpret_cast<uintptr_t>(buffer) * kSpread >> 32) % kKept];
  if (kept == buffer) return true;
  const RelaxedCaptureGuard relaxed;
  cudaPointerAttributes found{};
  if (cudaPointerGetAttributes(&found, buffer) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // nobody else is to meet it
    return false;
  }
  if (found.type != cudaMemoryTypeDevice && found.type != cudaMemoryTypeHost) return false;
  kept = buffer;
  return true;
}

bool BuffersAtHand::has_all(const MessageBatch& batch) {
  return std::all_of(batch.messages.begin(), batch.messages.end(),
                     [this](const Message& message) { return has(message.buffer); });
}

bool BuffersAtHand::has_all(const MessagePlan& plan) {
  return std::all_of(plan.begin(), plan.end(), [this](const std::vector<MessageBatch>& batches) {
    return std::all_of(batches.begin(), batches.end(), [this](const MessageBatch& batch) { return has_all(batch); });
  });
}

}  // namespace nitinol::cuda
