// Where devices are in a host's PCI tree, read from folders like those of /sys.
#include "base/pci_place.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_folder_testing.h"

namespace nitinol {
namespace {

/// /sys with devices that a test puts there.
class Host {
 public:
  Host() { std::filesystem::create_directories(folder_.file("bus/pci/devices")); }
  /// `path`: from the root complex down to the device.
  PciPlace place(const std::string& path, int numa_node = -1) const { return place(path, std::to_string(numa_node)); }
  PciPlace place(const std::string& path, const std::string& numa_node) const {
    const std::filesystem::path real = folder_.file("devices/" + path);
    std::filesystem::create_directories(real);
    if (!numa_node.empty()) std::ofstream(real / "numa_node") << numa_node << '\n';
    const std::string id = real.filename();
    std::filesystem::create_directory_symlink(real, folder_.file("bus/pci/devices/" + id));
    return read_pci_place(folder_.file("bus/pci/devices"), id);
  }
  std::string devices() const { return folder_.file("bus/pci/devices"); }

 private:
  TemporaryFolder folder_;
};

TEST(PciPlace, BelowOneSwitchDevicesAreNear) {
  const Host host;
  const std::string top = "pci0000:16/0000:16:01.0/0000:17:00.0/";
  const PciPlace first = host.place(top + "0000:18:00.0/0000:19:00.0", 0);
  const PciPlace second = host.place(top + "0000:18:04.0/0000:1b:00.0", 0);
  EXPECT_EQ(distance_between(first, second), PciDistance::kOneBridge);
  EXPECT_EQ(distance_between(second, first), PciDistance::kOneBridge);
  EXPECT_EQ(distance_between(first, first), PciDistance::kOneBridge);
}

TEST(PciPlace, BelowSwitchesOfOneSwitchDevicesHaveSeveralBetweenThem) {
  const Host host;
  const std::string top = "pci0000:16/0000:16:01.0/0000:17:00.0/";
  const PciPlace first = host.place(top + "0000:18:00.0/0000:19:00.0/0000:1a:00.0/0000:1b:00.0", 0);
  const PciPlace second = host.place(top + "0000:18:04.0/0000:29:00.0/0000:2a:00.0/0000:2b:00.0", 0);
  const PciPlace near_the_top = host.place(top + "0000:18:08.0/0000:3b:00.0", 0);
  EXPECT_EQ(distance_between(first, second), PciDistance::kBridges);
  EXPECT_EQ(distance_between(first, near_the_top), PciDistance::kBridges);
  EXPECT_EQ(distance_between(near_the_top, second), PciDistance::kBridges);
}

TEST(PciPlace, BehindDifferentPortsOfACpuDevicesHaveItsHostBridgeBetweenThem) {
  const Host host;
  const PciPlace first = host.place("pci0000:16/0000:16:01.0/0000:17:00.0", 1);
  const PciPlace other_port = host.place("pci0000:16/0000:16:05.0/0000:27:00.0", 1);
  const PciPlace other_root = host.place("pci0000:64/0000:64:01.0/0000:65:00.0", 1);
  const PciPlace other_node = host.place("pci0000:c9/0000:c9:01.0/0000:ca:00.0", 0);
  const PciPlace no_node = host.place("pci0000:e0/0000:e0:01.0/0000:e1:00.0", -1);
  const PciPlace no_node_either = host.place("pci0000:f0/0000:f0:01.0/0000:f1:00.0", -1);
  EXPECT_EQ(distance_between(first, other_port), PciDistance::kHostBridge);
  EXPECT_EQ(distance_between(first, other_root), PciDistance::kHostBridge);
  EXPECT_EQ(distance_between(first, other_node), PciDistance::kSystem);
  EXPECT_EQ(distance_between(first, no_node), PciDistance::kSystem);
  EXPECT_EQ(distance_between(no_node, no_node_either), PciDistance::kHostBridge);
}

TEST(PciPlace, ThatIsNotKnownIsFarFromAll) {
  const Host host;
  const PciPlace known = host.place("pci0000:16/0000:16:01.0/0000:17:00.0", 0);
  std::string deep = "pci0000:30";
  for (int i = 0; i < 12; ++i) deep += "/0000:3" + std::to_string(i % 10) + ":0" + std::to_string(i / 10) + ".0";
  for (const PciPlace& unknown : {PciPlace{}, read_pci_place(host.devices(), "0000:99:00.0"),
                                  read_pci_place("/no/such/folder", "0000:17:00.0"), host.place(deep)}) {
    EXPECT_EQ(distance_between(unknown, known), PciDistance::kSystem);
    EXPECT_EQ(distance_between(known, unknown), PciDistance::kSystem);
    EXPECT_EQ(distance_between(unknown, unknown), PciDistance::kSystem);
  }
}

TEST(PciPlace, HasNoNumaNodeThatIsNotWritten) {
  const Host host;
  EXPECT_EQ(host.place("pci0000:16/0000:16:01.0/0000:17:00.0", "").numa_node, -1);
  EXPECT_EQ(host.place("pci0000:16/0000:16:02.0/0000:18:00.0", "none").numa_node, -1);
}

TEST(PciPlace, IsFoundWhateverTheCaseOfTheBusId) {
  const Host host;
  const PciPlace place = host.place("pci0000:a0/0000:a0:01.0/0000:ab:00.0", 3);
  EXPECT_EQ(read_pci_place(host.devices(), "0000:AB:00.0").steps, place.steps);
  EXPECT_EQ(place.numa_node, 3);
}

}  // namespace
}  // namespace nitinol
