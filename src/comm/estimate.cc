#include "comm/estimate.h"

#include <algorithm>
#include <map>

#include "comm/communicator.h"

namespace nitinol {

double estimate(std::span<const Task> tasks) {
  std::map<int, double> by_device;
  for (Batch& batch : batches_of(tasks)) {
    batch.check_messages_to_self();
    by_device[batch.communicator->device()] += batch.communicator->estimate(batch.launch);
  }
  double most = 0;
  for (const auto& [device, us] : by_device) most = std::max(most, us);
  return most;
}

}  // namespace nitinol
