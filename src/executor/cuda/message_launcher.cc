#include "executor/cuda/message_launcher.h"

#include <algorithm>

#include "device/check.h"
#include "device/guards.h"
#include "executor/cuda/kernel_choice.h"
#include "executor/cuda/kernel_shapes.h"
#include "executor/cuda/launch_names.h"

namespace nitinol::cuda {

namespace {

template <class Parameters>
bool fits_into(const MessageBatch& batch) {
  return batch.lanes.size() <= Parameters::kMaxLanes && batch.messages.size() <= Parameters::kMaxMessages;
}

}  // namespace

bool MessageLauncher::has_several_protocols(const std::vector<MessageWork>& messages) const {
  std::optional<Queue> first;
  return std::any_of(messages.begin(), messages.end(), [&](const MessageWork& work) {
    if (work.bytes == 0 || work.peer == rank_) return false;
    if (!first) first = queue_for(work);
    return *first != queue_for(work);
  });
}

bool MessageLauncher::is_ready_for(const std::vector<MessageWork>& messages) const {
  const auto is_reached = [this](const MessageWork& work) {  // its kernels are loaded
    if (work.bytes == 0 || work.peer == rank_) return true;
    const Queue queue = queue_for(work);
    return domain_.reached(queue) && !(work.is_send() && domain_.misses(queue, work.peer));
  };
  return std::all_of(messages.begin(), messages.end(), is_reached) && (beside_ || !has_several_protocols(messages));
}

void MessageLauncher::prepare(const std::vector<MessageWork>& messages) {
  for (const MessageWork& work : messages) {
    if (work.bytes == 0 || work.peer == rank_) continue;
    const Queue queue = queue_for(work);
    reach_for_use(domain_, queue, sizes_.ranks_share_gpus);
    if (work.is_send()) domain_.must_not_miss(queue, work.peer);
  }
  if (beside_ || !has_several_protocols(messages)) return;
  const PrimaryContextGuard primary(domain_.device());
  beside_ = std::make_unique<Beside>();
}

void MessageLauncher::launch(const std::vector<MessageWork>& messages, cudaStream_t stream) {
  for (const SelfMessage& one : pair_self_messages(messages, rank_)) {
    if (one.bytes == 0 || one.from == one.to) continue;
    cuda_check(cudaMemcpyAsync(one.to, one.from, one.bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  }
  // A peer may send one by one, in any order, what this rank takes in one group: no protocol is to wait for another.
  // If not all CTAs can be resident at once, it is more important that those of one launch are; and where one does
  // wait for another, that all ranks begin with the same.
  MessagePlan plan = plan_messages(messages, rank_, sizes_);
  if (kernels_.has_part_of_gpu()) {
    put_partners_together(plan, rank_, domain_.ranks());
  } else if (in_rows()) {
    fit_into_ctas(plan, sizes_.message_ctas);
  }
  const bool together = may_run_together(plan, sizes_) && may_fork(stream);
  const cudaStream_t beside = together ? beside_->fork(stream) : stream;
  const std::optional<Role> shared = together ? std::optional(role_of(plan)) : std::nullopt;
  launch_batches(plan, Protocol::kLL, shared, stream);
  launch_batches(plan, Protocol::kLL128, shared, stream);
  launch_batches(plan, Protocol::kSimple, shared, beside);
  if (together) beside_->join(stream, beside);
}

/// Graphs put branches into queues that all graphs of a process share on a GPU: those of several ranks would stand in
/// line behind each other.
bool MessageLauncher::may_fork(cudaStream_t stream) const {
  const bool shares_queues = sizes_.ranks_share_gpus && capture_id(stream) != 0;
  return !shares_queues && beside_->is_free_for(stream);
}

/// Of each of a plan's launches that run beside each other: what a rank waits for may be in any. If there are several
/// by one protocol, it is not known which of those waits, and they have no name.
MessageLauncher::Role MessageLauncher::role_of(const MessagePlan& plan) const {
  const uint32_t protocols = protocols_of(plan);
  if (protocols == 0) return {};
  const bool captured = kernels_.captured();
  return {watch_.wants_names(captured) ? watch_.name(messages_of(plan), captured) : CallNames::kUnknown, protocols};
}

MessageLauncher::Role MessageLauncher::role_of(const MessageBatch& batch) const {
  const bool captured = kernels_.captured();
  return {watch_.wants_names(captured) ? watch_.name(messages_of(batch), captured) : CallNames::kUnknown};
}

/// `shared`: of all of the plan's launches, if those of several protocols run beside each other.
void MessageLauncher::launch_batches(const MessagePlan& plan, Protocol protocol, const std::optional<Role>& shared,
                                     cudaStream_t stream) {
  for (const MessageBatch& batch : plan[static_cast<size_t>(protocol)]) {
    const Role role = shared ? *shared : role_of(batch);
    if (fits_into<FewMessages>(batch)) {
      launch_batch<FewMessages>(batch, protocol, role, message_kernel_of(batch, 0, protocol, in_rows()), stream);
    } else if (fits_into<MoreMessages>(batch)) {
      launch_batch<MoreMessages>(batch, protocol, role, message_kernel_of(batch, 1, protocol, in_rows()), stream);
    } else {
      launch_batch<ManyMessages>(batch, protocol, role, message_kernel_of(batch, 2, protocol, in_rows()), stream);
    }
  }
}

template <class Parameters>
void MessageLauncher::launch_batch(const MessageBatch& batch, Protocol protocol, const Role& role, const void* kernel,
                                   cudaStream_t stream) {
  Parameters parameters;
  parameters.queue = domain_.view(message_queue_of(protocol));
  parameters.name = role.name;
  parameters.beside = role.beside;
  parameters.lanes = static_cast<int>(batch.lanes.size());
  parameters.channels_of_lane = static_cast<uint8_t>(batch.channels_of_lane);
  parameters.grain = sizes_.message_grain[static_cast<size_t>(protocol)];
  std::copy(batch.lanes.begin(), batch.lanes.end(), parameters.lane);
  std::copy(batch.messages.begin(), batch.messages.end(), parameters.message);
  const int rows = in_rows() ? std::min(kMostRows, parameters.lanes) : 1;
  const int ctas = (parameters.lanes + rows - 1) / rows;
  kernels_.run(kernel, {.ctas = ctas, .threads = sizes_.message_threads, .rows = rows}, parameters, stream);
}

}  // namespace nitinol::cuda
