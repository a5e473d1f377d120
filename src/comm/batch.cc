#include "comm/batch.h"

#include <algorithm>

#include "comm/communicator.h"
#include "device/stream.h"
#include "model/signature.h"

namespace nitinol {

void Batch::add(const Task& task) {
  communicator = task.communicator;
  if (const auto* const collective = std::get_if<CollectiveWork>(&task.work)) {
    launch.collectives.push_back(*collective);
  } else {
    launch.messages.push_back(std::get<MessageWork>(task.work));
  }
  if (std::find(streams.begin(), streams.end(), task.stream) == streams.end()) streams.push_back(task.stream);
}

void Batch::clear() {
  communicator = nullptr;
  launch.clear();
  streams.clear();
}

bool Batch::is_captured() const { return std::any_of(streams.begin(), streams.end(), is_being_captured); }

void Batch::check_messages_to_self() const {
  std::vector<MessageSignature> all[2];
  if (launch.messages.empty()) return;
  const int self = communicator->rank();
  for (const MessageWork& message : launch.messages) {
    std::vector<MessageSignature>& alike = all[static_cast<int>(message.direction)];
    if (message.peer == self) alike.push_back({alike.size() + 1, message.bytes, message.stated});
  }
  if (all[0].size() != all[1].size()) {
    fail(ncclInvalidUsage, "rank {} sends {} {} to itself and receives {}: each needs its match in the same group",
         self, all[0].size(), all[0].size() == 1 ? "message" : "messages", all[1].size());
  }
  for (size_t i = 0; i < all[0].size(); ++i) {
    if (all[0][i].packed() == all[1][i].packed()) continue;
    fail(ncclInvalidUsage, "rank {}'s messages to itself do not match: {} and {}", self, all[0][i].text(true, self),
         all[1][i].text(false, self));
  }
}

std::vector<Batch> batches_of(std::span<const Task> tasks) {
  std::vector<Batch> batches;
  for (const Task& task : tasks) {
    auto batch = std::find_if(batches.begin(), batches.end(),
                              [&](const Batch& one) { return one.communicator == task.communicator; });
    if (batch == batches.end()) batch = batches.insert(batch, Batch{});
    batch->add(task);
  }
  std::stable_sort(batches.begin(), batches.end(), [](const Batch& one, const Batch& other) {
    return one.communicator->identity() < other.communicator->identity();
  });
  return batches;
}

}  // namespace nitinol
