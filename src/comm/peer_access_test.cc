// Which ranks read and write each other's memory directly.
#include "comm/peer_access.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/settings_testing.h"

namespace nitinol {
namespace {

constexpr uint32_t kLinked = kReachesPeers | kKeepsLinesWhole;

/// Each of a GPU of its own.
std::vector<Peer> ranks_with(uint32_t reach, std::initializer_list<std::pair<PciPlace, int>> places) {
  std::vector<Peer> peers;
  for (const auto& [place, numa_node] : places) {
    Peer& peer = peers.emplace_back();
    peer.rank = static_cast<int32_t>(peers.size()) - 1;
    peer.process = peers.size();
    peer.device_id[0] = static_cast<char>('a' + peer.rank);
    peer.reach = reach;
    peer.pci_place = place;
    peer.pci_place.numa_node = numa_node;
  }
  return peers;
}

bool reached(const char* level, const std::vector<Peer>& peers) {
  const ScopedVariable set("NCCL_P2P_LEVEL", level);
  return has_peer_access(peers);
}

TEST(PeerAccess, OfLinkedGpusIsThereAtEveryLevelButTheLowest) {
  const auto linked = ranks_with(kLinked, {{PciPlace{}, 0}, {PciPlace{}, 1}});
  for (const char* level : {"NVL", "PIX", "PXB", "PHB", "SYS", "1", "2", "3", "4", "5", "sys", "nonsense"}) {
    EXPECT_TRUE(reached(level, linked)) << level;
  }
  EXPECT_FALSE(reached("LOC", linked));
  EXPECT_FALSE(reached("0", linked));
  const ScopedVariable disabled("NCCL_P2P_DISABLE", "1");
  EXPECT_FALSE(has_peer_access(linked));
}

TEST(PeerAccess, IsNotThereWhereOneGpuDoesNotReachTheOthers) {
  auto peers = ranks_with(kLinked, {{PciPlace{}, 0}, {PciPlace{}, 0}});
  EXPECT_TRUE(has_peer_access(peers));
  peers[1].reach = 0;
  EXPECT_FALSE(has_peer_access(peers));
}

#if defined(NITINOL_CUDA)  // virtual GPUs are linked

PciPlace below(std::initializer_list<uint64_t> steps) {
  PciPlace place;
  std::copy(steps.begin(), steps.end(), place.steps.begin());
  return place;
}

void expect_levels(const std::vector<Peer>& peers, bool nvl, bool pix, bool pxb, bool phb, bool sys) {
  EXPECT_EQ(reached("NVL", peers), nvl);
  EXPECT_EQ(reached("PIX", peers), pix);
  EXPECT_EQ(reached("PXB", peers), pxb);
  EXPECT_EQ(reached("PHB", peers), phb);
  EXPECT_EQ(reached("SYS", peers), sys);
}

TEST(PeerAccess, OverPcieGoesAsFarAsItsLevel) {
  const PciPlace first = below({1, 2, 3, 4, 5});
  const PciPlace same_switch = below({1, 2, 3, 6, 7});
  const PciPlace other_switch = below({1, 2, 3, 8, 9, 10, 11});
  const PciPlace other_root = below({20, 21, 22});
  expect_levels(ranks_with(kReachesPeers, {{first, 0}, {same_switch, 0}}), false, true, true, true, true);
  expect_levels(ranks_with(kReachesPeers, {{first, 0}, {same_switch, 0}, {other_switch, 0}}), false, false, true, true,
                true);
  expect_levels(ranks_with(kReachesPeers, {{other_root, 0}, {first, 0}, {same_switch, 0}}), false, false, false, true,
                true);
  expect_levels(ranks_with(kReachesPeers, {{first, 0}, {same_switch, 0}, {other_root, 1}}), false, false, false, false,
                true);
  expect_levels(ranks_with(kReachesPeers, {{PciPlace{}, 0}, {PciPlace{}, 0}}), false, false, false, false, true);
}

#endif

TEST(PeerAccess, OfLinkedGpusIsTriedIfThatIsAskedFor) {
  const auto linked = ranks_with(kLinked, {{PciPlace{}, 0}, {PciPlace{}, 0}});
  EXPECT_FALSE(tries_peer_access(linked));
  const ScopedVariable asked("NITINOL_P2P_TRY", "1");
  EXPECT_TRUE(tries_peer_access(linked));
}

TEST(PeerAccess, IsNeededBetweenProcessesWithoutSharedMemory) {
  const ScopedVariable disabled("NCCL_SHM_DISABLE", "1");
  auto peers = ranks_with(0, {{PciPlace{}, 0}, {PciPlace{}, 0}});
  EXPECT_THROW(require_way_through_host(peers), Error);
  peers[1].process = peers[0].process;
  require_way_through_host(peers);
}

}  // namespace
}  // namespace nitinol
