// How much memory and how many CTAs a communicator gets: pure arithmetic from what all ranks agree on.
#pragma once

#include <limits>

#include "executor/cuda/arena.h"
#include "executor/cuda/machine.h"
#include "executor/cuda/parameters.h"
#include "executor/executor.h"

namespace nitinol::cuda {

struct Sizes {
  Layouts layouts{};
  Limits limits;
  /// Collectives of which more than so many bytes go from one rank to one peer have LL16 for LL if they suit lines
  /// (algorithm/table.h).
  size_t without_lines_bytes = std::numeric_limits<size_t>::max();
  int message_threads = 256;
  /// What messages of a group have at most, in rows (fit_into_ctas()); 0: a CTA for each lane.
  int message_ctas = 0;
  int lanes_at_once = 0;  ///< of a rank's launches that run beside each other: so many CTAs are certainly resident
  /// Messages of at most so many bytes go by a protocol, unless one before it takes them; 0: none does.
  std::array<size_t, kProtocols> message_bytes{};
  std::array<MessageGrain, kProtocols> message_grain{};
  int ctas_ahead = 0;             ///< launches of at most so many CTAs may overlap with the next one in their stream
  bool ranks_share_gpus = false;  ///< some do: kernels are to leave room for others' on their multiprocessors
  /// What a channel has of a brief operation at most (brief_connections.h), by queue set, a multiple of grain_bytes; 0:
  /// none goes by it.
  std::array<size_t, kQueues> brief_bytes{};
  /// Bytes: two-shot algorithms with LL128 take no longer chunks,
  size_t two_shot_chunk = 0;
  size_t two_shot_chunk_of_one_round = 0;  ///< but up to this where one for each rank is all of a channel
};

Sizes sizes_for(const Machine& machine);

/// By which queue set a collective goes whose protocol is LL and which is not brief: the same for all ranks.
Queue queue_of_ll(const Sizes& sizes, const CollectiveWork& work, int ranks);

/// By what protocol a message goes: the same for sender and receiver.
Protocol message_protocol(const Sizes& sizes, size_t bytes);

}  // namespace nitinol::cuda
