// Which algorithm, protocol, number of channels and chunk an operation gets. Pure: computed from what all ranks agree
// on.
#pragma once

#include <array>

#include "model/plan.h"
#include "tuning/rules.h"

namespace nitinol {

/// One operation, as all its ranks see it alike.
struct Question {
  Collective what = Collective::kAllReduce;
  size_t count = 0;  ///< elements per rank's block
  DataType type = DataType::kUint8;
  bool order_free = true;
  int ranks = 1;
};

/// What the platform offers; equal on all ranks (executor/executor.h fills it).
struct Platform {
  std::array<size_t, kProtocols> slot_bytes{};  ///< 0: protocol not offered
  int channels = 1;
  size_t grain_bytes = 64;
  /// All-reduce, reduce, broadcast: up to this many bytes in one shot.
  size_t one_shot_bytes = 16384;
  /// Up to these sizes (bytes a rank sends to one peer) with LL, then LL128.
  size_t ll_bytes = 0;
  size_t ll128_bytes = 0;
  size_t bytes_per_channel = 1 << 16;  ///< less than this is not worth another channel
};

/// Throws Error(ncclInvalidUsage) if the rules leave nothing that serves.
Plan choose(const Question& question, const Platform& platform, const Rules& rules);

}  // namespace nitinol
