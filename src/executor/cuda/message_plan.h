// Sorts a group's messages into launches of lanes: pure, and the same on both sides of every message.
#pragma once

#include <array>
#include <vector>

#include "executor/cuda/parameters.h"
#include "executor/cuda/sizes.h"

namespace nitinol::cuda {

struct MessageBatch {
  std::vector<Lane> lanes;
  int channels_of_lane = 1;
  std::vector<Message> messages;
};

/// Launches for all messages that one queue set carries. Each takes the same number of messages from each direction of
/// each connection, so that whatever a launch waits for is in the peer's launch of the same number.
std::vector<MessageBatch> plan_messages(const std::vector<MessageWork>& work, const MessageGrain& grain,
                                        const QueueLayout& layout);

/// The same for each protocol, of all messages of rank `rank` with others.
using MessagePlan = std::array<std::vector<MessageBatch>, kProtocols>;
MessagePlan plan_messages(const std::vector<MessageWork>& all, int rank, const Sizes& sizes);

/// Puts lanes that wait for each other at the same place in the launches of all ranks: however few CTAs each has
/// resident, if two, there are always some that can go on. That holds where each end has all its messages in one group;
/// a peer that makes long ones one by one may wait for lanes that have no room yet, in whatever order they stand.
void put_partners_together(MessagePlan& plan, int rank, int ranks);

/// Has rows of CTAs carry several channels one behind the other, so that launches that run beside each other have no
/// more CTAs than that, of kMostRows rows; but each direction of each connection keeps one. Nobody waits for ever: both
/// ends come to the parts of a connection's messages in the order of these and of their channels, whatever rows each
/// has.
void fit_into_ctas(MessagePlan& plan, int most_ctas);

/// A bit for each protocol that has a launch; none at all if there are several by one protocol.
uint32_t protocols_of(const MessagePlan& plan);

/// Whether there are launches of several protocols, and those may run beside each other: all their CTAs are resident.
bool may_run_together(const MessagePlan& plan, const Sizes& sizes);

/// Messages with oneself: pairs of a send and the receive it goes to. Throws Error(ncclInvalidUsage) if one has no
/// partner.
struct SelfMessage {
  const void* from;
  void* to;
  size_t bytes;
};
std::vector<SelfMessage> pair_self_messages(const std::vector<MessageWork>& work, int rank);

}  // namespace nitinol::cuda
