// Memory that the GPUs of several ranks, in this and in other processes, read and write: on a GPU where peers can reach
// it, in pinned host memory where they cannot. The interface; transport/p2p is how it is made.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transport/transport.h"

namespace nitinol::p2p {

enum class Place {
  kDevice,
  kForUsers,  ///< of a device, too: ncclMemAlloc's, which others than this library may share and register as they like
  kHost,
};

/// A piece of such memory as this process sees it. Unmapped, and freed if nobody else maps it, at its end.
class Region {
 public:
  virtual ~Region() = default;
  char* address() const { return address_; }
  size_t bytes() const { return bytes_; }

  /// What another process needs to map it. Only of regions made by allocate(). Any thread.
  virtual MemoryHandle share() const = 0;

 protected:
  char* address_ = nullptr;
  size_t bytes_ = 0;
};

/// Zeroed memory of (or for) `device`, accessible to `devices` of this process also. Throws Error.
std::unique_ptr<Region> allocate(Place place, int device, size_t bytes, const std::vector<int>& devices);

/// Makes another process's memory accessible to `device`. Throws Error.
std::unique_ptr<Region> map(Place place, int device, MemoryHandle handle);

}  // namespace nitinol::p2p
