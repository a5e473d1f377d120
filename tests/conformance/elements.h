// Test data: what every rank holds, and what an operation must make of it, computed one element at a time by the rules
// of model/arithmetic.h.
#pragma once

#include <cstdint>
#include <vector>

#include "model/arithmetic.h"
#include "nccl.h"

namespace nitinol::testing {

using Buffer = std::vector<uint8_t>;

/// `count` elements of rank `rank`: different for every rank, index and seed. Floats are ordinary numbers whose sums
/// round, so that the order of a sum shows in its bits.
Buffer make_input(ncclDataType_t type, size_t count, int rank, uint32_t seed);

/// A scalar of the type, small enough that products stay ordinary numbers.
uint64_t make_scalar(ncclDataType_t type, int rank);

/// The canonical result of reducing the ranks' buffers element by element, in rank order. With `scalars`, input i is
/// first multiplied by scalars[i].
Buffer reduce(ncclDataType_t type, ncclRedOp_t op, const std::vector<Buffer>& inputs,
              const std::vector<uint64_t>& scalars = {});

size_t size_of(ncclDataType_t type);

}  // namespace nitinol::testing
