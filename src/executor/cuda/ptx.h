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

/// As __syncthreads(), but of so many threads of a CTA alone, whole warps, which have this barrier for themselves.
__device__ __forceinline__ void sync_some(uint32_t barrier, uint32_t threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(1 + barrier), "r"(threads) : "memory");
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

/// The copy unit of a multiprocessor moves runs of bytes between global and shared memory while threads go on (bulk
/// asynchronous copies). Addresses and lengths are multiples of 16; where shared memory does not begin with a multiple
/// of 128, what leaves for another GPU is cut into smaller packets and takes 1.4 times as long.
inline constexpr uint32_t kBulkGrain = 16;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kHasBulkCopies = true;
#else
inline constexpr bool kHasBulkCopies = false;
#endif

__device__ __forceinline__ uint32_t shared_address(const void* in_shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(in_shared));
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

/// Of what a barrier in shared memory waits for: one thread that arrives, and the bytes that it announces.
__device__ __forceinline__ void init_bulk_barrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void expect_bulk_bytes(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
/// Whether the phase with this parity is over; may take a while to say no.
__device__ __forceinline__ bool is_phase_over(uint64_t* barrier, uint32_t parity) {
  uint32_t over;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(over)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return over != 0;
}
__device__ __forceinline__ void bulk_load(void* to_shared, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to_shared)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void bulk_store(void* to, const void* from_shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from_shared)), "r"(bytes)
               : "memory");
}
/// Makes a group of this thread's stores since the last group.
__device__ __forceinline__ void close_bulk_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until all groups of this thread but the last kGroups have been written,
template <int kGroups>
__device__ __forceinline__ void await_bulk_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kGroups) : "memory");
}
/// or read from shared memory.
template <int kGroups>
__device__ __forceinline__ void await_bulk_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}
/// Between what threads do with shared memory themselves and what the copy unit does with it,
__device__ __forceinline__ void fence_bulk_in_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/// and what they have seen done in global memory.
__device__ __forceinline__ void fence_bulk_in_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

#else

__device__ __forceinline__ void init_bulk_barrier(uint64_t*) {}
__device__ __forceinline__ void expect_bulk_bytes(uint64_t*, uint32_t) {}
__device__ __forceinline__ bool is_phase_over(uint64_t*, uint32_t) { return true; }
__device__ __forceinline__ void bulk_load(void*, const void*, uint32_t, uint64_t*) {}
__device__ __forceinline__ void bulk_store(void*, const void*, uint32_t) {}
__device__ __forceinline__ void close_bulk_group() {}
template <int>
__device__ __forceinline__ void await_bulk_stores() {}
template <int>
__device__ __forceinline__ void await_bulk_reads() {}
__device__ __forceinline__ void fence_bulk_in_shared() {}
__device__ __forceinline__ void fence_bulk_in_global() {}

#endif

/// 16 bytes of payload, in whole lines: relaxed loads fetch host memory in pieces of 32 bytes, at half the speed.
__device__ __forceinline__ uint4 load_16(const void* from) { return load_live(from); }
__device__ __forceinline__ void store_16(void* to, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

}  // namespace nitinol::cuda
