#include "executor/cuda/links.h"

#include <algorithm>
#include <array>

#include "device/check.h"
#include "device/guards.h"
#include "executor/cuda/loaded_kernels.h"
#include "executor/executor.h"

namespace nitinol::cuda {

bool are_usually_linked(int compute_capability, std::string_view name) {
  constexpr std::array<int, 5> kForDataCentres = {70, 80, 90, 100, 103};
  constexpr std::array<std::string_view, 5> kCards = {"PCI", " NVL", "A30", "A800 40GB Active", "RTX"};
  const auto is_of_name = [name](std::string_view part) { return name.find(part) != std::string_view::npos; };
  return std::find(kForDataCentres.begin(), kForDataCentres.end(), compute_capability) != kForDataCentres.end() &&
         std::none_of(kCards.begin(), kCards.end(), is_of_name);
}

uint32_t bulk_bytes(int compute_capability, int compiled_for, size_t shared_bytes) {
  return std::min(compute_capability, compiled_for) < kHasBulkCopiesFrom ? 0 : static_cast<uint32_t>(shared_bytes);
}

}  // namespace nitinol::cuda

namespace nitinol {

void describe_gpu(Peer& peer, const cudaDeviceProp& properties) {
  int devices = 0;
  cuda_check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  peer.multiprocessors = properties.multiProcessorCount;
  peer.pci_place = read_pci_place("/sys/bus/pci/devices", formatted("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID,
                                                                    properties.pciBusID, properties.pciDeviceID));
  const DeviceGuard on(peer.device);
  peer.bulk_bytes =
      cuda::bulk_bytes(peer.compute_capability, cuda::kernels_compiled_for(), properties.sharedMemPerBlockOptin);
  peer.reach = kReachesPeers | kKeepsLinesWhole;
  for (int other = 0; other < devices; ++other) {
    if (other == peer.device) continue;
    int reaches = 0;
    int native = 0;  // atomic operations are native over NVLink, which keeps lines whole, and not over PCIe
    cuda_check(cudaDeviceGetP2PAttribute(&reaches, cudaDevP2PAttrAccessSupported, peer.device, other),
               "cudaDeviceGetP2PAttribute");
    cuda_check(cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, peer.device, other),
               "cudaDeviceGetP2PAttribute");
    if (reaches == 0) peer.reach = 0;
    if (native == 0) peer.reach &= ~static_cast<uint32_t>(kKeepsLinesWhole);
  }
  // Those that the process does not see may be behind PCIe.
  if (devices == 1 && !cuda::are_usually_linked(peer.compute_capability, properties.name)) {
    peer.reach &= ~static_cast<uint32_t>(kKeepsLinesWhole);
  }
}

bool are_perhaps_behind_pcie(std::span<const Peer> peers) {
  const auto is_on_another_gpu = [&](const Peer& peer) { return peer.device_id != peers.front().device_id; };
  const auto may_be = [](const Peer& peer) { return (peer.reach & kKeepsLinesWhole) == 0; };
  return std::any_of(peers.begin(), peers.end(), is_on_another_gpu) && std::any_of(peers.begin(), peers.end(), may_be);
}

}  // namespace nitinol
