// A GPU takes work from a few hardware queues. Streams that share one stand in line behind each other's kernels, which
// must not happen to kernels that wait for each other: those of ranks of one process that share a GPU.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "executor/executor.h"

namespace nitinol::cuda {

/// Throws Error(ncclInvalidUsage) if more ranks of this process share a GPU than it has queues for.
void check_queues(const ExecutorSetup& setup);

/// Threads of a process that launch on a GPU take turns, once it has several communicators there. CUDA chooses a
/// stream's queue when it begins to be used, and chooses the same one for streams into which several threads launch at
/// the same moment (`bench/queues_of_threads`).
class LaunchTurns {
 public:
  /// A communicator's part in it. A turn that takes longer than `longest` holds nobody up: it may wait for the kernel
  /// that another thread is about to launch.
  explicit LaunchTurns(int device, std::chrono::nanoseconds longest = std::chrono::milliseconds(1));
  ~LaunchTurns();
  LaunchTurns(const LaunchTurns&) = delete;
  LaunchTurns& operator=(const LaunchTurns&) = delete;

  /// One at a time for each communicator.
  class Turn {
   public:
    explicit Turn(LaunchTurns& turns);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    std::atomic<int64_t>* taken_ = nullptr;
  };

 private:
  struct Gpu;
  Gpu& gpu_;
  const int64_t longest_;  ///< nanoseconds
};

}  // namespace nitinol::cuda
