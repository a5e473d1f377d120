// Which algorithms and protocols the user allows: NCCL_ALGO and NCCL_PROTO.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/types.h"

namespace nitinol {

/// For each collective a bit per algorithm and per protocol that may be used.
struct Rules {
  static constexpr uint32_t kAny = ~0U;
  std::array<uint32_t, kCollectives> algorithms{};
  std::array<uint32_t, kCollectives> protocols{};
  /// Collectives for which the user named algorithms: then order-dependent sums may use any of these.
  std::array<bool, kCollectives> algorithms_named{};
  bool reproducible = true;  ///< NITINOL_REPRODUCIBLE: sums in canonical order unless the user named an algorithm
  int min_channels = 0;      ///< 0: free
  int max_channels = 0;      ///< 0: free

  static Rules any();
};

/// Parses `[function:][^]name{,name}{;...}`, case ignored. Functions: broadcast, reduce, allgather, reducescatter,
/// allreduce; the first section may go without one and then holds for all functions that have no section of their own.
/// Algorithm names: OneShot, TwoShot, Ring, Tree, and those of NCCL that this library has no counterpart of
/// (CollnetDirect, CollnetChain, NVLS, NVLSTree, PAT), which allow nothing. Throws Error(ncclInvalidUsage) at an
/// unknown word.
void restrict_algorithms(std::string_view text, Rules& rules);
/// The same for LL, LL128, Simple.
void restrict_protocols(std::string_view text, Rules& rules);

}  // namespace nitinol
