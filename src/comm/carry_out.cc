#include "comm/carry_out.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/background_group.h"
#include "comm/communicator.h"
#include "comm/strict_check.h"

namespace nitinol {
namespace {

using IfNotReady = Communicator::IfNotReady;

/// Whether the calling thread must put the batch into its streams itself, and wait for whatever is to be waited for:
/// - A capture belongs to the thread that began it: what another thread puts into the stream is refused, or missing in
///   the graph if that is ended meanwhile. A program that captures may not look at the state in between anyway.
/// - cudaStreamPerThread is another stream on each thread.
bool belongs_to_thread(const Batch& batch) {
  const auto is_own = [](cudaStream_t stream) { return stream == cudaStreamPerThread; };
  return std::any_of(batch.streams.begin(), batch.streams.end(), is_own) || batch.is_captured();
}

/// A group has blocking communicators or others, not both.
bool is_blocking(const Batch& batch) { return batch.communicator->config().blocking; }

ncclResult_t carry_out_on_one(Batch& batch) {
  Communicator& communicator = *batch.communicator;
  batch.check_messages_to_self();
  const bool compares = checks_strictly(communicator);
  if (!is_blocking(batch)) {
    if (!compares && communicator.run(batch.launch, batch.streams, IfNotReady::kLeave)) return ncclSuccess;
    if (!belongs_to_thread(batch)) {
      go_on_in_background({std::exchange(batch, Batch{})});
      return ncclInProgress;
    }
  }
  if (compares) compare_calls({&batch, 1});
  communicator.run(batch.launch, batch.streams);
  return ncclSuccess;
}

bool get_ready_at_once(std::span<Batch> batches) {
  return std::all_of(batches.begin(), batches.end(), [](Batch& batch) {
    return !checks_strictly(*batch.communicator) &&
           batch.communicator->get_ready(batch.launch, batch.streams.front(), IfNotReady::kLeave);
  });
}

/// What is needed for the first time may have to wait for running operations, which wait for those of this thread: so
/// all get ready before the first is submitted.
ncclResult_t carry_out_on_many(std::vector<Batch> batches) {
  for (const Batch& batch : batches) batch.check_messages_to_self();
  const bool blocking = is_blocking(batches.front());
  if (blocking || !get_ready_at_once(batches)) {
    if (!blocking && std::none_of(batches.begin(), batches.end(), belongs_to_thread)) {
      go_on_in_background(std::move(batches));
      return ncclInProgress;
    }
    compare_calls(batches);
    for (Batch& batch : batches) batch.communicator->get_ready(batch.launch, batch.streams.front());
  }
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
