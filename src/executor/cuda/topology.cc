#include "executor/cuda/topology.h"

namespace nitinol::cuda {
namespace {

/// Bytes per microsecond of a GPU's own memory, as kernels reach it (H100).
constexpr double kMemoryRate = 2.5e6;
/// While data is on a link the next is loaded, and the last stored: so little of that comes on top.
constexpr double kPartOnTop = 0.25;

/// The part of what goes over a link that is data, at least: LL may go in longer lines.
double payload_part_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::kLL: return 0.5;
    case Protocol::kLL128: return 120.0 / 128.0;
    case Protocol::kSimple: break;
  }
  return 1;
}

/// Bytes per microsecond in each direction. Measured: NVLink 4 (18 links) and host memory over PCIe 5. Not measured,
/// but what they are sold for: peers over PCIe 4. Ranks that share a GPU share its memory.
double rate_between_gpus(const Machine& m, bool linked) {
  if (m.in_host_memory) return 40e3;
  if (m.ranks_per_gpu > 1) return kMemoryRate / 4 / m.ranks_per_gpu;  // into a slot and out again
  return linked ? 362e3 : 25e3;
}

}  // namespace

TopologyModel topology_of(const Machine& machine, bool linked, Protocol protocol) {
  TopologyModel model;
  model.local = {.latency_us = machine.in_host_memory ? 2.0 : 0.8,
                 .bytes_per_us = rate_between_gpus(machine, linked) * payload_part_of(protocol)};
  model.copy_bytes_per_us = kMemoryRate / 2 / machine.ranks_per_gpu;  // each byte is read and written
  model.memory_bytes_per_us = kMemoryRate / kPartOnTop / machine.ranks_per_gpu;
  model.start_us = 1.7;  // in graphs, one operation behind the other; eager calls may have to wait for the host
  model.step_us = 0.1;
  model.slots = 4;
  return model;
}

}  // namespace nitinol::cuda
