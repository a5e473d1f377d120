// When a launch ran.
#pragma once

#include <cstdint>

namespace nitinol {

struct LaunchRun {
  uint64_t launch = 0;  ///< counted from 1, without those into graphs
  int64_t begun = 0;    ///< nanoseconds since the epoch: when all that was in its stream before it was through
  int64_t ended = 0;    ///< 0: not yet
};

}  // namespace nitinol
