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
  const Arrived seen{told.flag, told.awaited, told.found, told.marked_bytes};
  const bool settled = told.flag == seen.flag && told.awaited == seen.awaited && told.found == seen.found;
  if (seen.marked_bytes == 0 || seen.awaited == seen.found || !settled) return std::nullopt;
  constexpr uint32_t kBytesOfLL = 2;  // there a second flag is the first with the mark added
  const uint32_t known = ~0U << (32 - 8 * seen.marked_bytes);
  const uint32_t flag = seen.marked_bytes == kBytesOfLL ? seen.flag : 0;
  const uint32_t awaited = seen.awaited - flag;
  const uint32_t found = seen.found - flag;
  if (((awaited | found) & ~known) != 0) return std::nullopt;  // not of this step
  return MismatchTags{{awaited >> 8, known >> 8}, {found >> 8, known >> 8}};
}

}  // namespace nitinol::cuda
