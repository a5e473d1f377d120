// Predicts how long programs take on a modelled machine. Pure and deterministic.
//
// A transfer starts when its rank has ended the one before, its source slots are full and its sink slots are free. Then
// the rank reads its sources and writes its own buffer at memory speed (`memory_bytes_per_us`); messages leave one
// after the other, each as soon as the sender's and the receiver's port are free, at the link's rate, and arrive the
// link's latency later. The transfer ends when its own work is done and its last message has left; so do its source
// slots become free, which their senders learn a latency later.
#pragma once

#include <vector>

#include "algorithm/trace.h"
#include "model/topology_model.h"

namespace nitinol::simulate {

/// Microseconds until the last rank has ended. The programs (one per channel, of the same ranks) run at the same time
/// and share ports but not the ranks' memory rate. They must be in one part and free of
/// deadlock with `slots` (executor/verify).
double simulate(const std::vector<algorithm::Program>& channels, const TopologyModel& model);
double simulate(const algorithm::Program& program, const TopologyModel& model);

}  // namespace nitinol::simulate
