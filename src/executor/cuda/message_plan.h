// Sorts a group's messages into launches of lanes: pure, and the same on both sides of every message.
#pragma once

#include <vector>

#include "executor/cuda/parameters.h"

namespace nitinol::cuda {

struct MessageBatch {
  std::vector<Lane> lanes;
  std::vector<Message> messages;
};

/// Launches for all messages that one queue set carries. Each takes the same number of messages from each direction of
/// each connection, so that whatever a launch waits for is in the peer's launch of the same number.
std::vector<MessageBatch> plan_messages(const std::vector<MessageWork>& work, const MessageGrain& grain,
                                        const QueueLayout& layout);

/// Messages with oneself: pairs of a send and the receive it goes to. Throws Error(ncclInvalidUsage) if one has no
/// partner.
struct SelfMessage {
  const void* from;
  void* to;
  size_t bytes;
};
std::vector<SelfMessage> pair_self_messages(const std::vector<MessageWork>& work, int rank);

}  // namespace nitinol::cuda
