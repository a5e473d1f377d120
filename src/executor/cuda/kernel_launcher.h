// Puts a rank's kernels into streams: in what order with those of others on its GPU, and what may overlap.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "device/launch_order.h"
#include "executor/cuda/hardware_queues.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/loaded_kernels.h"
#include "executor/cuda/sizes.h"
#include "executor/executor.h"

namespace nitinol::cuda {

class KernelLauncher {
 public:
  /// `kernels` lives longer.
  KernelLauncher(const ExecutorSetup& setup, const Sizes& sizes, const LoadedKernels& kernels);

  /// While it lives kernels of one launch may be run. Throws Error(ncclInvalidUsage) where another thread launches,
  /// too, and that is to fail.
  class Turn {
   public:
    Turn(KernelLauncher& launcher, cudaStream_t stream, bool captured);
    /// All has been launched.
    void done() { order_.done(); }

   private:
    const LaunchTurns::Turn turn_;
    LaunchOrder::Turn order_;
  };

  /// Whether the launch is captured.
  bool captured() const { return captured_; }
  /// Whether the launch is in a green context: it may have room for some CTAs alone.
  bool has_part_of_gpu() const { return has_part_of_gpu_; }

  /// Of a launch of `ctas` for collectives of so many bytes (clusters.h).
  int ctas_of_cluster(int ctas, size_t bytes) const;

  /// During a turn. What of the shape depends on the stream and the GPU is added. Throws Error.
  template <class Parameters>
  void run(const void* kernel, LaunchShape shape, Parameters& parameters, cudaStream_t stream) {
    parameters.next_may_begin = may_next_begin_beside(shape.ctas);
    // Eager launches have events between them: none begins before the one before it has ended.
    if constexpr (requires { parameters.rehearses; }) parameters.rehearses = parameters.next_may_begin && captured_;
    shape.may_begin_early = parameters.next_may_begin;
    put(kernel, shape, &parameters, stream);
  }

 private:
  bool may_next_begin_beside(int ctas) const;
  void put(const void* kernel, LaunchShape shape, void* parameters, cudaStream_t stream);

  const int ranks_;
  const int ctas_ahead_;      ///< as in Sizes; 0 if the GPU's kernels cannot wait for those before them
  const int asked_clusters_;  ///< as cuda::ctas_of_cluster() takes it
  const LoadedKernels& kernels_;
  LaunchTurns turns_;
  LaunchOrder order_;
  // Of the turn:
  bool captured_ = false;
  bool has_part_of_gpu_ = false;
};

/// For the launches of one of the ranks, as cuda::ctas_of_cluster() takes it.
int asked_clusters(const ExecutorSetup& setup, const Peer& rank, bool ranks_share_gpus);

}  // namespace nitinol::cuda
