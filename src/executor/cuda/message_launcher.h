// Launches a group's messages: those of each protocol by a kernel or more, beside each other where that can be.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <optional>
#include <vector>

#include "executor/cuda/beside.h"
#include "executor/cuda/call_watch.h"
#include "executor/cuda/domain.h"
#include "executor/cuda/kernel_launcher.h"
#include "executor/cuda/message_plan.h"
#include "executor/executor.h"

namespace nitinol::cuda {

class MessageLauncher {
 public:
  /// What it uses lives longer.
  MessageLauncher(int rank, const Sizes& sizes, Domain& domain, CallWatch& watch, KernelLauncher& kernels)
      : rank_(rank), sizes_(sizes), domain_(domain), watch_(watch), kernels_(kernels) {}

  /// Whether `messages` need nothing more than there is.
  bool is_ready_for(const std::vector<MessageWork>& messages) const;
  /// Makes what they need. The rank's device must be current. Throws Error.
  void prepare(const std::vector<MessageWork>& messages);
  /// During a turn of `kernels`. Throws Error.
  void launch(const std::vector<MessageWork>& messages, cudaStream_t stream);

 private:
  /// As what a kernel of messages is launched.
  struct Role {
    CallName name = CallNames::kUnknown;
    uint32_t beside = 0;  ///< as in MessageParameters
  };
  Queue queue_for(const MessageWork& work) const { return message_queue_of(message_protocol(sizes_, work.bytes)); }
  /// Whether CTAs carry several lanes each.
  bool in_rows() const { return sizes_.message_ctas > 0; }
  bool has_several_protocols(const std::vector<MessageWork>& messages) const;
  bool may_fork(cudaStream_t stream) const;
  Role role_of(const MessagePlan& plan) const;
  Role role_of(const MessageBatch& batch) const;
  void launch_batches(const MessagePlan& plan, Protocol protocol, const std::optional<Role>& shared,
                      cudaStream_t stream);
  template <class Parameters>
  void launch_batch(const MessageBatch& batch, Protocol protocol, const Role& role, const void* kernel,
                    cudaStream_t stream);

  const int rank_;
  const Sizes& sizes_;
  Domain& domain_;
  CallWatch& watch_;
  KernelLauncher& kernels_;
  std::unique_ptr<Beside> beside_;  ///< once a group had messages of several protocols
};

}  // namespace nitinol::cuda
