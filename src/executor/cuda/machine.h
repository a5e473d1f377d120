// What sizes and crossovers are chosen by: the GPUs of a communicator, and what the user allows.
#pragma once

#include <cstddef>

#include "model/limits.h"

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

/// What was measured with 4 goes for 3, too.
inline bool has_three_or_four_ranks(const Machine& m) { return m.ranks == 3 || m.ranks == 4; }

inline bool has_few_ctas(const Machine& m) { return m.max_channels > 0 && m.max_channels <= kCtasOfNccl; }

/// Where small CTAs are offered though the user limits CTAs: not measured with more of either.
inline bool has_two_channels_per_cta(const Machine& m) { return has_few_ctas(m) && m.ranks <= 4 && !m.in_host_memory; }

}  // namespace nitinol::cuda
