// Kernels of a process's communicators begin on a GPU in the order in which they were launched, where they could keep
// each other from it otherwise: one has begun in part and waits for a peer, another has the rest of the GPU and waits
// for a peer where it is the other way round. Later ones wait until earlier ones have begun with all CTAs, not until
// they are done.
#pragma once

#include <vector>

#include "device/event.h"

namespace nitinol {

enum class LaunchOrdering {
  kNone,
  kWhereNeeded,  ///< once the largest kernels of all communicators together have more CTAs than fit for certain
  kAlways,
};

/// A communicator's part in it: one for each rank, whose calls come from one thread at a time.
class LaunchOrder {
 public:
  struct Options {
    int device = 0;
    int room = 0;  ///< so many CTAs fit for certain: one on each multiprocessor
    LaunchOrdering ordering = LaunchOrdering::kWhereNeeded;
    bool races_fail = false;  ///< launches by two threads at the same time are errors
  };
  explicit LaunchOrder(const Options& options);
  ~LaunchOrder();
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;

  /// A launch: kernels in a stream, or in several that run beside each other. The GPU is the current device.
  class Turn {
   public:
    /// Throws Error(ncclInvalidUsage) if another thread has begun one, where such races fail.
    explicit Turn(LaunchOrder& order);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    LaunchOrder& order_;
  };

  /// During a turn, before each kernel: the stream waits until what the kernel must not overtake has begun. What is
  /// returned is to be recorded when all CTAs of the kernel have begun; null: nothing is. Throws Error.
  cudaEvent_t next(cudaStream_t stream, int ctas);

 private:
  /// Where a kernel was launched: the stream's id, or its handle while it is captured.
  using Place = unsigned long long;
  struct Awaited {
    cudaEvent_t event;
    Place place;
  };
  struct Used {
    Place place;
    size_t waited;  ///< for so many of the awaited
  };
  struct Chain;
  struct Gpu;
  static Gpu& gpu_of(int device);
  void await_others(Chain& chain);
  size_t enter(Place place);

  const Options options_;
  Gpu* const gpu_;  ///< null: launches are not put in order
  int most_ctas_ = 0;
  std::vector<Awaited> awaited_;  ///< by this turn
  std::vector<Used> used_;        ///< by this turn
};

}  // namespace nitinol
