#include "executor/cuda/message_plan.h"

#include <algorithm>
#include <span>
#include <tuple>

#include "base/error.h"
#include "executor/cuda/kernel_shapes.h"

namespace nitinol::cuda {

namespace {

static_assert(MessageWork::kMostBytes >> Message::kTagShift == 0);

/// A message as one direction of a connection carries it.
struct Carried {
  int receives;
  int peer;
  size_t number;  ///< among the group's
  Message message;

  bool is_in_flow_of(const Carried& other) const { return receives == other.receives && peer == other.peer; }
  friend bool operator<(const Carried& one, const Carried& other) {
    return std::tie(one.receives, one.peer, one.number) < std::tie(other.receives, other.peer, other.number);
  }
};

/// Those of each direction and peer beside each other, in their order: sends first.
std::vector<Carried> sorted(const std::vector<MessageWork>& work) {
  std::vector<Carried> all;
  all.reserve(work.size());
  for (const MessageWork& one : work) {
    const int receives = one.is_send() ? 0 : 1;
    all.push_back({receives, one.peer, all.size(), Message::of(one.buffer, {.bytes = one.bytes, .type = one.stated})});
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// Some messages of one direction and peer become lanes of one launch.
void add_lanes(std::span<const Carried> some, const MessageGrain& grain, int most_channels, MessageBatch& batch) {
  int channels = 1;
  for (const Carried& one : some) {
    channels = std::max(channels, message_channels(one.message.bytes(), grain, most_channels));
  }
  for (int channel = 0; channel < channels; ++channel) {
    batch.lanes.push_back(Lane{.peer = static_cast<int16_t>(some.front().peer),
                               .sends = static_cast<int8_t>(1 - some.front().receives),
                               .channel = static_cast<int8_t>(channel),
                               .first = static_cast<int16_t>(batch.messages.size()),
                               .count = static_cast<int16_t>(some.size())});
  }
  for (const Carried& one : some) batch.messages.push_back(one.message);
}

}  // namespace

std::vector<MessageBatch> plan_messages(const std::vector<MessageWork>& work, const MessageGrain& grain,
                                        const QueueLayout& layout) {
  const std::vector<Carried> all = sorted(work);
  const auto most_flows = static_cast<size_t>(2 * std::max(1, layout.ranks - 1));
  const size_t each = std::max<size_t>(1, ManyMessages::kMaxMessages / most_flows);
  std::vector<MessageBatch> batches;
  for (auto begin = all.begin(); begin != all.end();) {
    const auto end = std::find_if_not(begin, all.end(), [&](const Carried& one) { return one.is_in_flow_of(*begin); });
    for (size_t which = 0; begin != end; ++which) {
      const auto count = std::min(static_cast<std::ptrdiff_t>(each), end - begin);
      if (which == batches.size()) batches.emplace_back();
      add_lanes({begin, begin + count}, grain, layout.channels, batches[which]);
      begin += count;
    }
  }
  return batches;
}

MessagePlan plan_messages(const std::vector<MessageWork>& all, int rank, const Sizes& sizes) {
  std::array<std::vector<MessageWork>, kProtocols> works;
  for (const MessageWork& work : all) {
    if (work.peer == rank || work.bytes == 0) continue;
    works[static_cast<size_t>(message_protocol(sizes, work.bytes))].push_back(work);
  }
  MessagePlan plan;
  for (size_t i = 0; i < kProtocols; ++i) {
    if (works[i].empty()) continue;
    const Queue queue = message_queue_of(static_cast<Protocol>(i));
    plan[i] = plan_messages(works[i], sizes.message_grain[i], sizes.layouts[static_cast<size_t>(queue)]);
  }
  return plan;
}

void put_partners_together(MessagePlan& plan, int rank, int ranks) {
  // Of the two ends of a lane each finds the other at the same place.
  const auto place = [&](const Lane& lane) {
    const int distance = lane.sends != 0 ? lane.peer - rank : rank - lane.peer;
    return std::tuple(lane.channel, (distance + ranks) % ranks, lane.sends);
  };
  for (std::vector<MessageBatch>& batches : plan) {
    for (MessageBatch& batch : batches) {
      std::sort(batch.lanes.begin(), batch.lanes.end(),
                [&](const Lane& one, const Lane& other) { return place(one) < place(other); });
    }
  }
}

namespace {

/// Of launches that run beside each other, where a row carries a lane of so many channels.
int ctas_of(const MessagePlan& plan, int channels_of_lane) {
  std::ptrdiff_t ctas = 0;
  for (const std::vector<MessageBatch>& batches : plan) {
    std::ptrdiff_t most = 0;
    for (const MessageBatch& batch : batches) {
      const auto begins_row = [&](const Lane& lane) { return lane.channel % channels_of_lane == 0; };
      most = std::max(most, std::count_if(batch.lanes.begin(), batch.lanes.end(), begins_row));
    }
    ctas += (most + kMostRows - 1) / kMostRows;
  }
  return static_cast<int>(ctas);
}

void join_channels(MessageBatch& batch, int channels_of_lane) {
  std::erase_if(batch.lanes, [&](const Lane& lane) { return lane.channel % channels_of_lane != 0; });
  batch.channels_of_lane = channels_of_lane;
}

}  // namespace

void fit_into_ctas(MessagePlan& plan, int most_ctas) {
  constexpr int kMostChannels = INT8_MAX;
  int channels_of_lane = 1;
  while (channels_of_lane < kMostChannels && ctas_of(plan, channels_of_lane) > most_ctas) ++channels_of_lane;
  for (std::vector<MessageBatch>& batches : plan) {
    for (MessageBatch& batch : batches) join_channels(batch, channels_of_lane);
  }
}

uint32_t protocols_of(const MessagePlan& plan) {
  uint32_t bits = 0;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].size() > 1) return 0;
    if (!plan[i].empty()) bits |= 1U << i;
  }
  return bits;
}

bool may_run_together(const MessagePlan& plan, const Sizes& sizes) {
  int protocols = 0;
  size_t lanes = 0;
  for (const std::vector<MessageBatch>& batches : plan) {
    size_t most = 0;
    for (const MessageBatch& batch : batches) most = std::max(most, batch.lanes.size());
    lanes += most;
    protocols += batches.empty() ? 0 : 1;
  }
  return protocols > 1 && lanes <= static_cast<size_t>(sizes.lanes_at_once);
}

std::vector<SelfMessage> pair_self_messages(const std::vector<MessageWork>& work, int rank) {
  std::vector<SelfMessage> sends;
  std::vector<SelfMessage> receives;
  for (const MessageWork& one : work) {
    if (one.peer != rank) continue;
    if (one.is_send()) {
      sends.push_back({one.buffer, nullptr, one.bytes});
    } else {
      receives.push_back({nullptr, one.buffer, one.bytes});
    }
  }
  if (sends.size() != receives.size()) {
    fail(ncclInvalidUsage, "rank {} sends {} messages to itself in this group and receives {}: each needs its partner",
         rank, sends.size(), receives.size());
  }
  for (size_t i = 0; i < sends.size(); ++i) {
    sends[i].to = receives[i].to;
    sends[i].bytes = std::min(sends[i].bytes, receives[i].bytes);
  }
  return sends;
}

}  // namespace nitinol::cuda
