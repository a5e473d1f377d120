#include "executor/cuda/links.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "executor/executor.h"

namespace nitinol::cuda {
namespace {

TEST(Links, AreThereBetweenAllGpusOfHostsThatAreMadeForThem) {
  EXPECT_TRUE(are_usually_linked(70, "Tesla V100-SXM2-32GB"));
  EXPECT_TRUE(are_usually_linked(80, "NVIDIA A100-SXM4-80GB"));
  EXPECT_TRUE(are_usually_linked(90, "NVIDIA H100 80GB HBM3"));
  EXPECT_TRUE(are_usually_linked(90, "NVIDIA H200"));
  EXPECT_TRUE(are_usually_linked(100, "NVIDIA GB200"));
}

TEST(Links, AreNotBetweenAllCards) {
  EXPECT_FALSE(are_usually_linked(70, "Tesla V100-PCIE-16GB"));
  EXPECT_FALSE(are_usually_linked(80, "NVIDIA A100-PCIE-40GB"));
  EXPECT_FALSE(are_usually_linked(80, "NVIDIA A100 80GB PCIe"));
  EXPECT_FALSE(are_usually_linked(80, "NVIDIA A30"));
  EXPECT_FALSE(are_usually_linked(90, "NVIDIA H100 PCIe"));
  EXPECT_FALSE(are_usually_linked(90, "NVIDIA H100 NVL"));
  EXPECT_FALSE(are_usually_linked(90, "NVIDIA H200 NVL"));
  EXPECT_FALSE(are_usually_linked(75, "Tesla T4"));
  EXPECT_FALSE(are_usually_linked(86, "NVIDIA A10"));
  EXPECT_FALSE(are_usually_linked(89, "NVIDIA L40S"));
}

TEST(Links, CopyUnitsAreUsedWhereGpusHaveThemAndKernelsKnow) {
  constexpr size_t kBytes = 232448;
  EXPECT_EQ(bulk_bytes(90, 90, kBytes), kBytes);
  EXPECT_EQ(bulk_bytes(120, 90, kBytes), kBytes);
  EXPECT_EQ(bulk_bytes(90, 80, kBytes), 0U) << "the driver compiled for the GPU what was compiled for older ones";
  EXPECT_EQ(bulk_bytes(80, 80, kBytes), 0U);
}

std::vector<Peer> on_gpus(const std::vector<std::pair<char, uint32_t>>& gpus) {
  std::vector<Peer> peers;
  for (const auto& [id, reach] : gpus) peers.emplace_back().reach = reach, peers.back().device_id[0] = id;
  return peers;
}

TEST(Links, ArePerhapsPcieUnlessAllGpusAreKnownToBeLinked) {
  constexpr uint32_t kLinked = kReachesPeers | kKeepsLinesWhole;
  EXPECT_FALSE(are_perhaps_behind_pcie(on_gpus({{'a', kLinked}, {'b', kLinked}})));
  EXPECT_TRUE(are_perhaps_behind_pcie(on_gpus({{'a', kReachesPeers}, {'b', kReachesPeers}})));
  EXPECT_TRUE(are_perhaps_behind_pcie(on_gpus({{'a', kLinked}, {'b', kReachesPeers}})));
  EXPECT_TRUE(are_perhaps_behind_pcie(on_gpus({{'a', kReachesPeers}, {'b', kLinked}})));
  EXPECT_FALSE(are_perhaps_behind_pcie(on_gpus({{'a', kReachesPeers}, {'a', kReachesPeers}}))) << "they share one";
}

}  // namespace
}  // namespace nitinol::cuda
