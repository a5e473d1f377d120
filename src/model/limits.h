// What an executor offers and where its algorithms and protocols cross over: what tuning needs to know of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "model/types.h"

namespace nitinol {

/// NCCL's kernels have no more, unless the user allows them to.
inline constexpr int kCtasOfNccl = 32;

/// Equal on all ranks of a communicator.
struct Limits {
  std::array<size_t, kProtocols> slot_bytes{};  ///< most payload bytes of one chunk; 0: the protocol is not offered
  int channels = 1;                             ///< most channels (CTAs) of one operation,
  int simple_channels = 64;                     ///< and with Simple, if that is less
  size_t grain_bytes = 64;                      ///< channels start at multiples of this,
  size_t grain(DataType type) const { return std::max<size_t>(1, grain_bytes / bytes_of(type)); }  ///< in elements

  /// What small CTAs use with Simple.
  struct Small {
    int channels = 0;       ///< 0: not offered
    size_t slot_bytes = 0;  ///< most bytes of one chunk
    int per_cta = 1;        ///< so many channels share a CTA
  };
  /// Where the parts of a rank's program have CTAs of their own (algorithm/parts.h); channels of each part.
  Small apart_sums;
  Small apart_moves;
  const Small& apart(Collective what) const { return reduces(what) ? apart_sums : apart_moves; }
  /// Where each rank takes from the one before it alone: broadcast and reduce by Ring, and reduce by OneShot between
  /// two.
  Small line;
  Small mesh;    ///< where it takes from all others
  Small joined;  ///< where the parts of a channel share a CTA
  /// `along_line`: algorithm::goes_along_line of the operation.
  const Small& small(bool along_line) const { return along_line ? line : mesh; }

  // Measured crossovers.
  size_t one_shot_bytes = 16384;            ///< all-reduce: up to this many bytes in one shot,
  size_t sum_one_shot_bytes = SIZE_MAX;     ///< long sums where two shots may be brief: if that is less
  size_t broadcast_one_shot_bytes = 16384;  ///< the same for broadcast
  size_t broadcast_ring_bytes = SIZE_MAX;   ///< broadcast of so many bytes and more may go in a ring,
  size_t ring_lines_bytes = 0;              ///< in lines up to so many
  /// Reduce by Ring, where that keeps to the order of ranks or no order matters, of
  struct ReduceRing {
    size_t bytes = SIZE_MAX;        ///< so many bytes and more; by LL128,
    size_t small_bytes = SIZE_MAX;  ///< or by small CTAs from so many bytes on,
    bool by_simple = false;         ///< or by Simple
    size_t brief_bytes = 0;         ///< what may be brief in two shots only from so many bytes on
  };
  ReduceRing reduce_ring;
  ReduceRing reduce_ring_back;                     ///< where the sum comes back to the root, which began
  size_t reduce_one_shot_bytes = 16384;            ///< the same for reduce,
  size_t sum_reduce_one_shot_bytes = SIZE_MAX;     ///< and for its long sums where LL128 may be used: if that is less
  size_t ll_bytes = 0;                             ///< up to this many bytes from one rank to one peer with LL,
  std::array<size_t, kCollectives> lines_bytes{};  ///< or up to this many if it suits lines (algorithm/table.h),
  std::array<size_t, kCollectives> ll128_bytes{};  ///< and up to this many with LL128,
  /// of blocks that begin between vectors of 16 bytes (algorithm::grain_of_blocks) up to this many if that is more,
  std::array<size_t, kCollectives> words_ll128_bytes{};
  size_t two_shot_ll128_bytes = SIZE_MAX;  ///< for all-reduce in two shots if that is less
  size_t bytes_per_channel = 1 << 16;      ///< less than this is not worth another channel,
  size_t simple_bytes_per_channel = 0;     ///< nor less than this with Simple if the operation is not rooted
  size_t least_chunk_bytes = 0;            ///< Simple: shorter chunks than slots, but not than this, for more rounds:
  size_t least_rounds = 4;                 ///< so many of a channel, where parts do not have CTAs of their own
  /// By small CTAs chunks of what goes in one shot are no longer.
  size_t one_shot_chunk_bytes = SIZE_MAX;
  size_t many_channels_bytes = 0;  ///< blocks of fewer bytes are not worth more than
  int few_channels = 32;           ///< so many channels
  /// Where long sums are brief in two shots: their channels are as many as take whole units of blocks.
  struct TwoBriefShots {
    size_t unit_bytes = 0;   ///< what a worker moves at once; 0: it does not matter
    size_t block_bytes = 0;  ///< most of a block that a channel takes
  };
  TwoBriefShots two_brief_shots;
  int rooted_channels = 0;  ///< Simple: rooted operations have at most so many and whole slots; 0: as others
  size_t long_rooted_bytes = SIZE_MAX;              ///< of so many bytes and more half as many
  bool passes_on_short_chunks = false;              ///< Simple: chunks that ranks pass on are as short as others
  std::array<size_t, kCollectives> apart_bytes{};   ///< blocks of so many bytes and more in parts; 0: never
  std::array<size_t, kCollectives> small_bytes{};   ///< and by small CTAs,
  std::array<size_t, kCollectives> joined_bytes{};  ///< or, without a scalar, by joined parts
  /// With LL128 reduces in two shots of so many bytes and more have at most so many channels.
  size_t long_reduce_bytes = SIZE_MAX;
  int long_reduce_channels = 0;
  /// With LL128 messages of so many bytes and more use no more CTAs than NCCL does; 0: as many as there are.
  std::array<size_t, kCollectives> compact_bytes{};
};

}  // namespace nitinol
