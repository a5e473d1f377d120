// Which buffers of messages are at hand for whatever touches them: a GPU's memory, or pinned. Others the system may
// have to fetch, from the host's memory or from a disk, for as long as that takes.
#pragma once

#include <array>
#include <cstddef>

#include "executor/cuda/message_plan.h"

namespace nitinol::cuda {

/// Of the thread that launches. Asks CUDA, but for those that were lately found to be at hand. A program may give such
/// memory back and have other memory at the same address: then a circle of messages that are only late may be told, if
/// the system needs longer than half a second for it.
class BuffersAtHand {
 public:
  bool has_all(const MessageBatch& batch);
  bool has_all(const MessagePlan& plan);

 private:
  bool has(const void* buffer);

  static constexpr size_t kKept = 64;
  std::array<const void*, kKept> kept_{};
};

}  // namespace nitinol::cuda
