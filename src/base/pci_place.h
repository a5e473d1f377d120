// Where a device is in its host's PCI tree, and what lies between two of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace nitinol {

/// Of fixed size and trivially copyable: ranks tell it each other.
struct PciPlace {
  static constexpr size_t kDeepest = 12;
  /// Numbers for what lies on the way to the device: the root complex, bridges, the device itself. Zeros behind; all of
  /// them if the place is not known.
  std::array<uint64_t, kDeepest> steps{};
  int32_t numa_node = -1;  ///< of its memory; -1: not known
};

/// From near to far.
enum class PciDistance {
  kOneBridge,   ///< at most one switch
  kBridges,     ///< several, but not the CPU's host bridge
  kHostBridge,  ///< that, of one NUMA node
  kSystem       ///< what links NUMA nodes; or it is not known
};

/// The place of the device with this bus id ("0000:3b:00.0", in letters of either case), as a folder like
/// /sys/bus/pci/devices tells it. Not known if it does not.
PciPlace read_pci_place(const std::string& devices, std::string bus_id);

/// Of devices of one host.
PciDistance distance_between(const PciPlace& one, const PciPlace& other);

}  // namespace nitinol
