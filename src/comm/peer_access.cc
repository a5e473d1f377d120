#include "comm/peer_access.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "base/settings.h"
#include "executor/executor.h"

namespace nitinol {

namespace {

/// From near to far.
enum class Distance { kNone, kLinked, kOneBridge, kBridges, kHostBridge, kAny };

/// How far those are whose memory is to be reached directly, if drivers let it be.
Distance farthest_to_reach() {
  static constexpr std::array<std::tuple<std::string_view, std::string_view, Distance>, 6> kLevels = {
      {{"LOC", "0", Distance::kNone},
       {"NVL", "NVL", Distance::kLinked},
       {"PIX", "1", Distance::kOneBridge},
       {"PXB", "2", Distance::kBridges},
       {"PHB", "3", Distance::kHostBridge},
       {"SYS", "4", Distance::kAny}}};
  if (settings().flag(Setting::kP2pDisable)) return Distance::kNone;
  const std::string level = settings().text_if_set(Setting::kP2pLevel).value_or("SYS");
  for (const auto& [name, number, distance] : kLevels) {
    if (level == name || level == number) return distance;
  }
  return Distance::kAny;
}

/// Of the two ranks whose GPUs are farthest from each other.
Distance distance_of(std::span<const Peer> peers) {
  if (!are_perhaps_behind_pcie(peers)) return Distance::kLinked;
  auto farthest = PciDistance::kOneBridge;
  for (const Peer& one : peers) {
    for (const Peer& other : peers) {
      farthest = std::max(farthest, distance_between(one.pci_place, other.pci_place));
    }
  }
  switch (farthest) {
    case PciDistance::kOneBridge: return Distance::kOneBridge;
    case PciDistance::kBridges: return Distance::kBridges;
    case PciDistance::kHostBridge: return Distance::kHostBridge;
    case PciDistance::kSystem: break;
  }
  return Distance::kAny;
}

}  // namespace

const char* words_for_peers_to_reach() {
  switch (farthest_to_reach()) {
    case Distance::kNone: return "no direct access";
    case Distance::kLinked: return "direct access where all GPUs are linked";
    case Distance::kOneBridge: return "direct access over at most one PCI switch";
    case Distance::kBridges: return "direct access over PCI switches";
    case Distance::kHostBridge: return "direct access within a NUMA node";
    case Distance::kAny: return "direct access";
  }
  return "";
}

bool has_peer_access(std::span<const Peer> peers) {
  const Distance farthest = farthest_to_reach();
  if (farthest == Distance::kNone || !reach_each_other(peers)) return false;
  return farthest == Distance::kAny || distance_of(peers) <= farthest;
}

bool tries_peer_access(std::span<const Peer> peers) {
  const bool doubtful = are_perhaps_behind_pcie(peers);
  return settings().integer_if_set(Setting::kP2pTry).value_or(doubtful ? 1 : 0) != 0;
}

void require_way_through_host(std::span<const Peer> peers) {
  if (!settings().flag(Setting::kShmDisable)) return;
  const auto is_elsewhere = [&](const Peer& peer) { return peer.process != peers.front().process; };
  const auto other = std::find_if(peers.begin(), peers.end(), is_elsewhere);
  if (other == peers.end()) return;
  fail(ncclInvalidUsage,
       "NCCL_SHM_DISABLE=1 leaves ranks {} and {} no way to each other: their GPUs do not reach each other's memory, "
       "and communication over the network is not built yet",
       peers.front().rank, other->rank);
}

}  // namespace nitinol
