#include "base/pci_place.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/host.h"

namespace nitinol {

namespace {

/// Never 0, which stands for no step.
uint64_t number_of(std::string_view name) { return std::max(stable_hash(name), uint64_t{1}); }

/// 0: it is not known.
size_t depth_of(const PciPlace& place) {
  return static_cast<size_t>(std::find(place.steps.begin(), place.steps.end(), 0U) - place.steps.begin());
}

}  // namespace

PciPlace read_pci_place(const std::string& devices, std::string bus_id) {
  std::transform(bus_id.begin(), bus_id.end(), bus_id.begin(), [](unsigned char c) { return std::tolower(c); });
  std::error_code error;
  const auto path = std::filesystem::canonical(std::filesystem::path(devices) / bus_id, error);
  if (error) return {};
  PciPlace place;
  size_t depth = 0;
  for (const auto& part : path) {
    const std::string name = part.string();
    if (depth == 0 && !name.starts_with("pci")) continue;  // folders above the root complex
    if (depth == PciPlace::kDeepest) return {};
    place.steps[depth++] = number_of(name);
  }
  std::ifstream stream(path / "numa_node");
  if (int32_t node = -1; stream >> node) place.numa_node = node;
  return place;
}

PciDistance distance_between(const PciPlace& one, const PciPlace& other) {
  const size_t depth = depth_of(one);
  const size_t other_depth = depth_of(other);
  if (depth == 0 || other_depth == 0) return PciDistance::kSystem;
  const auto parting = std::mismatch(one.steps.begin(), one.steps.end(), other.steps.begin()).first;
  const auto common = static_cast<size_t>(parting - one.steps.begin());
  if (common >= depth) return PciDistance::kOneBridge;  // the same device
  // Below one port of the root complex data need not go through that. Hosts of one node may tell of none.
  constexpr size_t kStepsToRootPort = 2;
  if (common < kStepsToRootPort) {
    const bool same_node = common == 1 || one.numa_node == other.numa_node;
    return same_node ? PciDistance::kHostBridge : PciDistance::kSystem;
  }
  // Of a switch each device has a port of its own above it.
  const size_t below = std::max(depth, other_depth) - common;
  return below <= 2 ? PciDistance::kOneBridge : PciDistance::kBridges;
}

}  // namespace nitinol
