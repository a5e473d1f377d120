// What an executor offers and where its algorithms and protocols cross over: what tuning needs to know of it.
#pragma once

#include <array>
#include <cstdint>

#include "model/types.h"

namespace nitinol {

/// Equal on all ranks of a communicator.
struct Limits {
  std::array<size_t, kProtocols> slot_bytes{};  ///< most payload bytes of one chunk; 0: the protocol is not offered
  int channels = 1;                             ///< most channels (CTAs) of one operation,
  int simple_channels = 64;                     ///< and with Simple, if that is less
  size_t grain_bytes = 64;                      ///< channels start at multiples of this

  /// Where the parts of a rank's program have CTAs of their own (algorithm/parts.h).
  struct Apart {
    int channels = 0;       ///< of each part; 0: not offered
    size_t slot_bytes = 0;  ///< most bytes of one chunk
  };
  Apart apart_sums;
  Apart apart_moves;
  const Apart& apart(Collective what) const { return reduces(what) ? apart_sums : apart_moves; }

  // Measured crossovers.
  size_t one_shot_bytes = 16384;            ///< all-reduce: up to this many bytes in one shot
  size_t broadcast_one_shot_bytes = 16384;  ///< the same for broadcast
  size_t broadcast_ring_bytes = SIZE_MAX;   ///< broadcast by LL128 of so many bytes and more goes in a ring,
  size_t broadcast_ring_most = SIZE_MAX;    ///< of so many at most
  size_t reduce_one_shot_bytes = 16384;     ///< the same for reduce
  size_t ll_bytes = 0;                      ///< up to this many bytes from one rank to one peer with LL,
  size_t ll128_bytes = 0;                   ///< and up to this many with LL128
  size_t reduce_ll128_bytes = 0;            ///< for reduce up to this many, if that is more
  size_t bytes_per_channel = 1 << 16;       ///< less than this is not worth another channel
  size_t least_chunk_bytes = 0;             ///< Simple: shorter chunks than slots, but not than this, for more rounds:
  size_t least_rounds = 4;                  ///< so many of a channel, where parts do not have CTAs of their own
  size_t many_channels_bytes = 0;           ///< blocks of fewer bytes are not worth more than
  int few_channels = 32;                    ///< so many channels
  std::array<size_t, kCollectives> apart_bytes{};  ///< blocks of so many bytes and more in parts; 0: never
};

}  // namespace nitinol
