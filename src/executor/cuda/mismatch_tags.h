// What kernels tell of data of another call than their own.
#pragma once

#include <cstdint>
#include <optional>

#include "executor/cuda/parameters.h"
#include "executor/marked_calls.h"

namespace nitinol::cuda {

/// The tags of the call that waits and of the one whose data there is.
struct MismatchTags {
  SeenTag expected;
  SeenTag found;
};

/// Nothing if nothing was found, it is of the same call, or it is being told in this moment.
inline std::optional<MismatchTags> tags_of(const volatile Arrived& told) {
  const Arrived seen{told.awaited, told.found};
  const bool settled = told.awaited == seen.awaited && told.found == seen.found;
  const uint32_t marked_bytes = seen.awaited & 0xff;
  const uint32_t awaited = seen.awaited - marked_bytes;
  if (marked_bytes == 0 || awaited == seen.found || !settled) return std::nullopt;
  const uint32_t known = ~0U << (32 - 8 * marked_bytes);
  if (((awaited | seen.found) & ~known) != 0) return std::nullopt;  // not of this step
  return MismatchTags{{awaited >> 8, known >> 8}, {seen.found >> 8, known >> 8}};
}

}  // namespace nitinol::cuda
