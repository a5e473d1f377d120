// How much memory and how many CTAs a communicator gets: pure arithmetic from what all ranks agree on.
#pragma once

#include <limits>

#include "executor/cuda/arena.h"
#include "executor/cuda/parameters.h"
#include "executor/executor.h"

namespace nitinol::cuda {

struct Machine {
  int ranks = 1;
  int ranks_per_gpu = 1;         ///< most ranks that share one GPU: the CTAs of all must be resident at once
  int multiprocessors = 64;      ///< of the smallest GPU
  bool lines_stay_whole = true;  ///< 128-byte stores arrive at once: LL128 may be used
  bool has_clusters = false;     ///< CTAs form clusters where that is good (clusters.h), as the user has no other wish
  size_t bulk_bytes = 0;        ///< of shared memory for a CTA, where all kernels use copy units (bulk copies in ptx.h)
  bool in_host_memory = false;  ///< what ranks exchange goes through host memory
  int max_channels = 0;         ///< 0: free to choose
  size_t buffer_bytes = 0;      ///< for the slots of one connection (Simple); 0: free to choose
};

struct Sizes {
  Layouts layouts{};
  Limits limits;
  /// Collectives of which more than so many bytes go from one rank to one peer have LL16 for LL if they suit lines
  /// (algorithm/table.h).
  size_t without_lines_bytes = std::numeric_limits<size_t>::max();
  int message_threads = 256;
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
