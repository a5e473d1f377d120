// How long operations take as they are planned: the simulator's time for what a communicator is about to launch.
#pragma once

#include <span>

#include "model/plan.h"
#include "model/topology_model.h"

namespace nitinol::simulate {

/// Microseconds until a collective has ended on all of its `ranks` ranks, which begin it at the same time, by its plan.
/// Channels start at multiples of `grain` elements. Some of them stand for all, with their part of the ports and of the
/// memory's rate; of a long one the first rounds are simulated, and others are supposed to take as long as the last of
/// these. Takes some milliseconds for up to 16 ranks, and a second for hundreds.
double estimate(const CollectiveWork& work, int ranks, size_t grain, TopologyModel model);

/// Microseconds for the messages of `rank`, which all run at the same time.
double estimate(std::span<const MessageWork> messages, int rank, const TopologyModel& model);

}  // namespace nitinol::simulate
