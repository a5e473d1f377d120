// Puts kernels into streams by the driver's call: it takes up to 0.3 us less of the host than the
// runtime's (bench/launch_cost).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace nitinol::cuda {

struct LaunchShape {
  int ctas = 1;
  int ctas_of_cluster = 1;  ///< 1: no clusters
  int threads = 32;         ///< of a row of a CTA,
  int rows = 1;             ///< and how many of these it has
  size_t shared_bytes = 0;
  cudaEvent_t begun = nullptr;   ///< is recorded when all CTAs have begun; null: none is
  bool may_begin_early = false;  ///< before what is ahead of it in its stream has ended: it waits for that itself
};

/// `kernel` takes `parameters` as its only parameter. On the current device. Throws Error.
void launch(cudaKernel_t kernel, const LaunchShape& shape, void* parameters, cudaStream_t stream);

}  // namespace nitinol::cuda
