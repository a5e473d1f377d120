// How much work a program is, in numbers that do not depend on a machine: tests hold algorithms to them.
#pragma once

#include "algorithm/trace.h"

namespace nitinol::algorithm {

/// "most" is over ranks. Counts of one channel.
struct Cost {
  size_t steps = 0;          ///< most transfers of a rank
  size_t messages_sent = 0;  ///< most messages of a rank; a push to all counts once per peer
  size_t messages_received = 0;
  size_t elements_sent = 0;
  size_t elements_received = 0;
  size_t elements_reduced = 0;  ///< most elements combined by a rank: a transfer of s sources counts s - 1 times
  size_t elements_touched = 0;  ///< most reads and writes of a rank's own memory: buffers and incoming slots
  size_t hops = 0;              ///< messages in the longest chain of messages that wait for each other
};

/// Programs in one part, and free of deadlock (executor/verify), only.
Cost cost(const Program& program);

}  // namespace nitinol::algorithm
