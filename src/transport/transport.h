// What executors need of the world to reach other ranks' memory; comm/ implements it over the bootstrap's services.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/unique_fd.h"

namespace nitinol {

/// A file descriptor that stands for memory (a memfd, or an exported GPU allocation), with its size in bytes.
struct MemoryHandle {
  UniqueFd fd;
  uint64_t bytes = 0;
};

/// Passes memory handles between the processes of a host. Peers are ranks of one communicator.
class HandleExchange {
 public:
  virtual ~HandleExchange() = default;

  /// From now on a peer that fetches `name` from this rank gets what `make` returns. `make` runs on a service thread,
  /// once per fetch, may be called at any time until the exchange is destroyed or the name withdrawn, and must not
  /// block.
  virtual void offer(uint64_t name, std::function<MemoryHandle()> make) = 0;
  /// The same for what may take long, as allocating a GPU's memory may: `make` may block.
  virtual void offer_on_demand(uint64_t name, std::function<MemoryHandle()> make) { offer(name, std::move(make)); }
  virtual void withdraw(uint64_t name) = 0;

  /// The handle that `peer` offers under `name`. Waits for the peer's service threads. Throws Error: ncclRemoteError
  /// if the peer has died, offers nothing of this name, or has not answered in time.
  virtual MemoryHandle fetch(int peer, uint64_t name) = 0;

  /// Whether a peer whose memory is not to be had is gone, which may only be known in a moment: waits for that.
  virtual bool turns_out_gone(int /*peer*/) const { return false; }
};

/// A mapping of memory that other processes of the host can map too; zero when made, and without a page until it is
/// touched. The memory lives as long as somebody maps it or holds its descriptor: nothing is left in a file system.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// New memory. Without `shareable` it is private to the process and costs no descriptor. Throws Error.
  static SharedMemory create(size_t bytes, bool shareable);
  /// Memory that another process offers. Throws Error unless there are `bytes` bytes that can never be taken away.
  static SharedMemory map(const MemoryHandle& handle, size_t bytes);

  /// A duplicate of the descriptor of shareable memory. Throws Error.
  MemoryHandle share() const;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  UniqueFd fd_;
};

}  // namespace nitinol
