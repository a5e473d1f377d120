#include "comm/carry_out.h"

#include <algorithm>
#include <vector>

#include "comm/communicator.h"
#include "comm/strict_check.h"

namespace nitinol {
namespace {

ncclResult_t carry_out_on_one(Batch& batch) {
  batch.check_messages_to_self();
  if (checks_strictly(*batch.communicator)) compare_calls({&batch, 1});
  batch.communicator->run(batch.launch, batch.streams);
  return ncclSuccess;
}

/// What is needed for the first time may have to wait for running operations, which wait for those of this thread: so
/// all get ready before the first is submitted.
ncclResult_t carry_out_on_many(std::vector<Batch> batches) {
  for (const Batch& batch : batches) batch.check_messages_to_self();
  compare_calls(batches);
  for (Batch& batch : batches) batch.communicator->get_ready(batch.launch, batch.streams.front());
  for (const Batch& batch : batches) batch.communicator->submit(batch.launch, batch.streams);
  return ncclSuccess;
}

}  // namespace

ncclResult_t carry_out(std::span<const Task> tasks, Batch& memory) {
  if (tasks.empty()) return ncclSuccess;
  const auto same_communicator = [&](const Task& task) { return task.communicator == tasks.front().communicator; };
  const bool one = tasks.size() == 1 || std::all_of(tasks.begin(), tasks.end(), same_communicator);  // most groups
  if (!one) return carry_out_on_many(batches_of(tasks));
  memory.clear();
  for (const Task& task : tasks) memory.add(task);
  return carry_out_on_one(memory);
}

}  // namespace nitinol
