// The few memory instructions that have no C++ spelling, under names that say what they do.
#pragma once

#include <cstdint>

namespace nitinol::cuda {

/// Never cached, never merged, never dropped: what another GPU writes is seen.
__device__ __forceinline__ uint4 load_live(const void* from) {
  uint4 v;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_live_word(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ void store_live(void* to, uint4 v) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ void store_live_pair(void* to, uint32_t first, uint32_t second) {
  asm volatile("st.volatile.global.v2.u32 [%0], {%1,%2};" ::"l"(to), "r"(first), "r"(second) : "memory");
}
__device__ __forceinline__ void store_live_word(uint32_t* to, uint32_t v) {
  asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}

/// What was written before the matching release, by any GPU, is seen by loads after this one.
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
/// Everything this thread wrote or saw written is seen by whoever sees a store made after this.
__device__ __forceinline__ void fence_all_gpus() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

/// As __syncthreads(), but of those threads alone that have the same threadIdx.y.
__device__ __forceinline__ void sync_row() {
  asm volatile("barrier.sync %0, %1;" ::"r"(1 + threadIdx.y), "r"(blockDim.x) : "memory");
}

/// Of a clock that does not stop.
__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

/// A kernel may begin while the one before it in its stream still runs (programmatic dependent launch). Until this
/// returns it must not touch memory: then all earlier kernels are done. At once if it has not begun early.
__device__ __forceinline__ void await_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel of the stream begin, once all CTAs of this one have come here.
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// 16 bytes of payload, in whole lines: relaxed loads fetch host memory in pieces of 32 bytes, at half the speed.
__device__ __forceinline__ uint4 load_16(const void* from) { return load_live(from); }
__device__ __forceinline__ void store_16(void* to, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

}  // namespace nitinol::cuda
