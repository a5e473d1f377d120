// What launches are called by: to that leads what kernels that wait tell of themselves (call_names.h).
#pragma once

#include <span>

#include "executor/call_names.h"
#include "executor/cuda/message_plan.h"

namespace nitinol::cuda {

NamedLaunch collectives_of(std::span<const CollectiveWork> works);

/// Of a launch beside which no other runs.
NamedLaunch messages_of(const MessageBatch& batch);
/// Of several that run beside each other.
NamedLaunch messages_of(const MessagePlan& plan);

}  // namespace nitinol::cuda
