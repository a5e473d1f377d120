// What every rank tells all others about itself when a communicator is made.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/pci_place.h"

namespace nitinol {

/// Of all GPUs that a rank's process sees.
enum Reach : uint32_t {
  kReachesPeers = 1,     ///< its GPU reads and writes the memory of the others
  kKeepsLinesWhole = 2,  ///< and 128 bytes stored at once arrive at once
};

/// Fixed-size and trivially copyable: it travels through the bootstrap's all-gather as it is.
struct Peer {
  int32_t rank = -1;
  int32_t device = -1;   ///< CUDA device index in its process
  uint64_t host = 0;     ///< equal for ranks that can share memory by file descriptors
  uint64_t process = 0;  ///< random number drawn once per process: equal means the same address space
  int32_t pid = 0;
  uint64_t pid_namespace = 0;      ///< in which the pid counts
  int32_t compute_capability = 0;  ///< 10 * major + minor
  int32_t multiprocessors = 0;     ///< of its GPU; 0: unknown
  uint32_t reach = 0;              ///< what its GPU can do with other GPUs' memory: Reach bits
  PciPlace pci_place{};            ///< of its GPU
  uint32_t bulk_bytes = 0;         ///< shared memory of a CTA at most, where kernels use copy units; 0: they do not
  std::array<char, 64> host_name{};
  std::array<char, 108> handle_server{};      ///< name of the process's Unix socket for memory handles
  std::array<char, 16> device_id{};           ///< UUID of the device: equal means the same physical GPU
  uint32_t version = 0;                       ///< NCCL_VERSION_CODE of the library
  uint32_t flavour = 0;                       ///< 0 virtual GPUs, 1 CUDA
  std::array<uint32_t, 3> shared_settings{};  ///< hashes of the settings that all ranks must share
  std::array<uint8_t, 24> meeting_point{};    ///< where the process listens, as the bootstrap encodes it
};
static_assert(std::is_trivially_copyable_v<Peer>);

/// Whether the GPUs of all ranks read and write each other's memory.
inline bool reach_each_other(std::span<const Peer> peers) {
  return std::all_of(peers.begin(), peers.end(), [](const Peer& peer) { return (peer.reach & kReachesPeers) != 0; });
}

/// What came from elsewhere may hold anything: afterwards its texts end within their room, and can be printed.
inline void tidy(Peer& peer) {
  const auto tidy_text = [](auto& text) {
    text.back() = '\0';
    for (char& c : text) {
      if (c != '\0' && (c < ' ' || c > '~')) c = '?';
    }
  };
  tidy_text(peer.host_name);
  tidy_text(peer.handle_server);
}

}  // namespace nitinol
