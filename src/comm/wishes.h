// What ranks choose their plans by: each brings what its own environment and configuration say, and as all must choose
// alike, all go by the same.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "comm/config.h"
#include "model/types.h"
#include "tuning/rules.h"

namespace nitinol {

/// It travels through the bootstrap's all-gather as it is.
struct Wishes {
  std::array<uint32_t, kCollectives> algorithms{};  ///< that may be used, as in Rules
  std::array<uint32_t, kCollectives> protocols{};
  uint32_t named = 0;         ///< a bit for each collective for which the user named algorithms
  uint32_t reproducible = 1;  ///< or 0
  int32_t min_ctas = 0;       ///< 0: free
  int32_t max_ctas = 0;       ///< 0: free
  int32_t cluster_ctas = -1;  ///< -1: free
  uint64_t buffer_bytes = 0;  ///< 0: free
  friend bool operator==(const Wishes&, const Wishes&) = default;
};
static_assert(std::is_trivially_copyable_v<Wishes>);

/// This rank's. Throws Error(ncclInvalidUsage) if NCCL_ALGO or NCCL_PROTO has words that it does not know.
Wishes own_wishes(const Config& config);

/// What all go by, of the wishes by rank: limits of CTAs within those of everybody, sums in rank order if anybody wants
/// them, and else what rank 0 wishes. What the others say may be anything; the limits are possible ones afterwards.
Wishes agreed_wishes(std::span<const Wishes> all);

/// In what the ranks do not go by this one's, in words: "NCCL_ALGO as on rank 0, at most 8 CTAs"; "" if they do.
std::string told_differences(const Wishes& mine, const Wishes& agreed);

Rules rules_of(const Wishes& wishes);

}  // namespace nitinol
