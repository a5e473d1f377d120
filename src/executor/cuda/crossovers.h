// Where algorithms, protocols and kinds of kernels cross over, as measured.
#pragma once

#include "executor/cuda/machine.h"
#include "executor/cuda/sizes.h"
#include "model/limits.h"

namespace nitinol::cuda {

inline constexpr uint32_t kKi = 1024;
inline constexpr size_t kMega = size_t{1} << 20;

/// Of what is under way between more than two at a time the memory of hosts bears little: with 24 MB of it, of all 4
/// ranks together, 64 MB of all-gather took 1478 us, with 48 MB 1897 and with 192 MB 2585. So chunks are as short as
/// can be, however long the operation, and with more ranks there are fewer channels. What goes one way did best with
/// slots of 32 KB: broadcast of 64 MB took 1575 us, with 16 KB 1753 and with 128 KB 2065, messages of 16 MB to a
/// neighbour 510, 521 and 705.
inline constexpr size_t kChunkThroughHost = 16 * kKi;
inline constexpr uint32_t kSlotThroughHost = 32 * kKi;
inline constexpr size_t kUnderWayThroughHost = 48 * kMega;

/// All but those of brief shots, of limits that say already what is offered.
void set_crossovers(const Machine& machine, Limits& limits);

/// Where two shots are brief (brief_connections.h). Last.
void set_crossovers_of_brief_shots(const Machine& machine, Sizes& sizes);

}  // namespace nitinol::cuda
