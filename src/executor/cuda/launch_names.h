// What launches are called by: to that leads what kernels that wait tell of themselves (call_names.h).
#pragma once

#include <optional>
#include <span>

#include "executor/call_names.h"
#include "executor/cuda/message_plan.h"

namespace nitinol::cuda {

NamedLaunch collectives_of(std::span<const CollectiveWork> works);

/// Of a launch beside which no other runs.
NamedLaunch messages_of(const MessageBatch& batch);
/// Of each of several that run beside each other: what a rank waits for may be in any. Nothing if there are several by
/// one protocol, as it is not known then which of those waits.
std::optional<NamedLaunch> messages_of(const MessagePlan& plan);

}  // namespace nitinol::cuda
