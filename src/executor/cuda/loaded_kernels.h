// Kernels that are ready to be launched. CUDA loads a kernel when it is first used, unless CUDA_MODULE_LOADING=EAGER,
// and waits for all that runs on that GPU: which may wait for this very thread, or for another rank there. So kernels
// are loaded when a communicator is made.
#pragma once

#include <cuda_runtime.h>

#include <limits>
#include <unordered_map>
#include <vector>

#include "executor/cuda/combiner.h"
#include "executor/cuda/ways.h"
#include "model/types.h"

namespace nitinol::cuda {

class LoadedKernels {
 public:
  /// Of a communicator of so many ranks, on this device. Where ranks share GPUs kernels leave room for others on their
  /// multiprocessors.
  LoadedKernels(int device, int ranks, const Sizes& sizes)
      : device_(device),
        ranks_(ranks),
        room_beside_(sizes.ranks_share_gpus),
        messages_in_rows_(sizes.message_ctas > 0),
        ways_(ways_of(sizes)) {}

  bool has(const void* kernel) const { return kernels_.contains(kernel); }
  /// Of one that is loaded. Throws Error otherwise.
  cudaKernel_t handle_of(const void* kernel) const;
  /// The device must be current. Throws Error.
  void load(const void* kernel);
  /// With so much shared memory at most, in bytes, if that is more than others need.
  void load(const void* kernel, size_t shared);
  /// What most programs use: copies, messages, and reductions of the types of training and its bookkeeping, by ways
  /// that are in use.
  void load_usual();
  /// Whatever the type, and the way but for joined parts where there are none: for ranks that share a GPU, where
  /// nothing is to be loaded later.
  void load_all();

  /// Whether all that were loaded were compiled for GPUs of this compute capability, or a later one.
  bool compiled_for(int compute_capability) const { return least_compiled_for_ >= compute_capability; }

 private:
  using Sets = std::vector<const KernelSet*>;
  enum class Scope { kWaysInUse, kAllWays };
  template <class Visit>
  void for_each_wanted(const KernelSet& set, Scope scope, Visit&& visit) const;
  std::vector<const void*> first_of_each(const Sets& sets, Scope scope) const;
  static void add_reduction(Sets& sets, DataType type, Combiner with);
  void load(const Sets& sets, Scope scope);

  const int device_;
  const int ranks_;
  const bool room_beside_;
  const bool messages_in_rows_;
  const Ways ways_;
  std::unordered_map<const void*, cudaKernel_t> kernels_;
  int least_compiled_for_ = std::numeric_limits<int>::max();
};

/// For what compute capability the kernels were compiled that the current device runs: its own, or an older one. Throws
/// Error.
int kernels_compiled_for();

/// The compute capability from which on there is programmatic dependent launch.
inline constexpr int kCanWaitForEarlierKernels = 90;
inline constexpr int kHasBulkCopiesFrom = 90;

}  // namespace nitinol::cuda
