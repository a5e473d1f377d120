// A launch of one CTA by the runtime's call, for programs that measure launches.
#pragma once

#include <cuda_runtime.h>

#include "cuda_status.h"

/// `overlaps`: it may begin before what is ahead of it in the stream has ended, and waits for that itself.
inline void launch_by_runtime(const void* kernel, int threads, bool overlaps, void** arguments, cudaStream_t stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlaps ? 1 : 0;
  check(cudaLaunchKernelExC(&config, kernel, arguments), "cudaLaunchKernelExC");
}
