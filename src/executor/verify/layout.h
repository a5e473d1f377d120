// What each collective's buffers are and what its result is, as the API says it (nccl.h).
#pragma once

#include <optional>

#include "algorithm/trace.h"
#include "executor/verify/value.h"

namespace nitinol::verify {

/// One rank's buffers, in elements, cut into blocks of Share::stride.
struct Layout {
  size_t input_blocks = 0;  ///< 0: the rank has no such buffer
  size_t output_blocks = 0;
  /// In place, where the buffers lie in the larger of the two; nothing if the collective has no in-place form here.
  struct InPlace {
    size_t input = 0;
    size_t output = 0;
  };
  std::optional<InPlace> in_place;
};

Layout layout_of(const algorithm::Task& task, int rank);

/// What one block of a rank's output holds in the end.
struct Expected {
  Value value;
  size_t element = 0;  ///< of the inputs, for the block's first element
};
Expected expected_in(const algorithm::Task& task, int rank, size_t block);

}  // namespace nitinol::verify
