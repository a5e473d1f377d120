// How many CTAs of a launch of messages have begun. A GPU that is busy with something else may hold up a part of them;
// who waits tells the host whether all have begun, as it depends on that what follows from the wait (kernel_waits.h).
// Launches by one protocol come one after the other, so they share a counter.
#pragma once

#include "executor/cuda/parameters.h"
#include "executor/cuda/ptx.h"

namespace nitinol::cuda {

__device__ __forceinline__ uint32_t* begun_ctas(const QueueView& queue) {
  return &queue.layout.own_state(queue.counters, queue.layout.channels - 1, queue.rank)->begun;
}

/// By one thread of each CTA, once earlier kernels are done. The last one makes it zero.
__device__ __forceinline__ void count_begun(const QueueView& queue) { atomicInc(begun_ctas(queue), gridDim.x - 1); }

/// Of the launch that the calling CTA is of, which has been counted long before its first wait is told.
__device__ __forceinline__ bool all_have_begun(const QueueView& queue) {
  return load_live_word(begun_ctas(queue)) == 0;
}

}  // namespace nitinol::cuda
