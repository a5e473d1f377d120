#include "executor/cuda/message_plan.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "executor/cuda/kernels.h"

namespace nitinol::cuda {

std::vector<MessageBatch> plan_messages(const std::vector<MessageWork>& work, const MessageGrain& grain,
                                        const QueueLayout& layout) {
  std::map<std::pair<int, int>, std::vector<Message>> flows;  // by direction and peer: sends first
  for (const MessageWork& one : work) {
    if (one.bytes >> Message::kTagShift != 0) {
      fail(ncclInvalidArgument, "a message of {} bytes: fewer than {} are possible", one.bytes,
           uint64_t{1} << Message::kTagShift);
    }
    const int receives = one.direction == MessageWork::Direction::kSend ? 0 : 1;
    flows[{receives, one.peer}].push_back(Message::of(one.buffer, {.bytes = one.bytes, .type = one.stated}));
  }
  const auto most_flows = static_cast<size_t>(2 * std::max(1, layout.ranks - 1));
  const size_t each = std::max<size_t>(1, ManyMessages::kMaxMessages / most_flows);
  size_t longest = 0;
  for (const auto& [key, messages] : flows) longest = std::max(longest, messages.size());

  std::vector<MessageBatch> batches((longest + each - 1) / each);
  for (const auto& [key, messages] : flows) {
    for (size_t first = 0; first < messages.size(); first += each) {
      MessageBatch& batch = batches[first / each];
      const size_t count = std::min(each, messages.size() - first);
      int channels = 1;
      for (size_t i = 0; i < count; ++i) {
        channels = std::max(channels, message_channels(messages[first + i].bytes(), grain, layout.channels));
      }
      for (int channel = 0; channel < channels; ++channel) {
        batch.lanes.push_back(Lane{.peer = static_cast<int16_t>(key.second),
                                   .sends = static_cast<int8_t>(1 - key.first),
                                   .channel = static_cast<int8_t>(channel),
                                   .first = static_cast<int16_t>(batch.messages.size()),
                                   .count = static_cast<int16_t>(count)});
      }
      batch.messages.insert(batch.messages.end(), messages.begin() + static_cast<std::ptrdiff_t>(first),
                            messages.begin() + static_cast<std::ptrdiff_t>(first + count));
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
    if (one.direction == MessageWork::Direction::kSend) {
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
