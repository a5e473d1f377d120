// How fast GPUs are to each other, for estimates: what was measured of machines of that kind.
#pragma once

#include "executor/cuda/sizes.h"
#include "model/topology_model.h"

namespace nitinol::cuda {

/// What a communicator goes through by a protocol. `linked`: all GPUs by NVLink, else perhaps over PCIe.
TopologyModel topology_of(const Machine& machine, bool linked, Protocol protocol);

}  // namespace nitinol::cuda
