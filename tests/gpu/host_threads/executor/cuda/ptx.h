// Stands in for src/executor/cuda/ptx.h where kernels run on the host with a thread for each of theirs: warps and CTAs
// meet at barriers, flags are atomic, and all else is just memory, so that a race detector sees what is missing.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

struct Position {
  unsigned x = 0;
};
inline thread_local Position threadIdx;
inline thread_local Position blockIdx;
inline thread_local Position blockDim;
inline thread_local Position gridDim;

using std::min;

namespace nitinol::host_threads {

class Barrier {
 public:
  explicit Barrier(unsigned count) : count_(count) {}
  void meet() {
    std::unique_lock lock(mutex_);
    const unsigned turn = turn_;
    if (++here_ == count_) {
      here_ = 0;
      ++turn_;
      all_.notify_all();
    } else {
      all_.wait(lock, [&] { return turn_ != turn; });
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  unsigned count_;
  unsigned here_ = 0;
  unsigned turn_ = 0;
};

/// Of a CTA of one warp.
struct Cta {
  Barrier barrier{32};
  unsigned said[32] = {};
};
inline thread_local Cta* cta = nullptr;

/// What all lanes say, by lane; `use` gets it before anybody says something else.
template <class Use>
unsigned exchange(unsigned mine, Use&& use) {
  cta->said[threadIdx.x] = mine;
  cta->barrier.meet();
  const unsigned result = use(cta->said);
  cta->barrier.meet();
  return result;
}

}  // namespace nitinol::host_threads

inline void __syncwarp() { nitinol::host_threads::cta->barrier.meet(); }
inline void __syncthreads() { nitinol::host_threads::cta->barrier.meet(); }
inline void __threadfence_block() {}
inline unsigned __ballot_sync(unsigned, int mine) {
  return nitinol::host_threads::exchange(static_cast<unsigned>(mine), [](const unsigned* said) {
    unsigned bits = 0;
    for (unsigned lane = 0; lane < 32; ++lane) bits |= (said[lane] != 0 ? 1U : 0U) << lane;
    return bits;
  });
}
inline int __any_sync(unsigned mask, int mine) { return __ballot_sync(mask, mine) != 0 ? 1 : 0; }
inline int __all_sync(unsigned mask, int mine) { return __ballot_sync(mask, mine == 0 ? 1 : 0) == 0 ? 1 : 0; }
inline unsigned __shfl_sync(unsigned, unsigned mine, int lane) {
  return nitinol::host_threads::exchange(mine, [lane](const unsigned* said) { return said[lane]; });
}
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline unsigned atomicOr(unsigned* word, unsigned bits) { return std::atomic_ref(*word).fetch_or(bits); }
inline unsigned atomicExch(unsigned* word, unsigned value) { return std::atomic_ref(*word).exchange(value); }
inline unsigned atomicInc(unsigned* word, unsigned most) {
  std::atomic_ref<unsigned> counter(*word);
  unsigned value = counter.load();
  while (!counter.compare_exchange_weak(value, value >= most ? 0 : value + 1)) {
  }
  return value;
}
inline float __int_as_float(int bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

namespace nitinol::cuda {

inline uint4 load_16(const void* from) {
  uint4 value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
inline void store_16(void* to, uint4 value) { std::memcpy(to, &value, sizeof(value)); }
inline uint4 load_live(const void* from) { return load_16(from); }
inline void store_live(void* to, uint4 value) { store_16(to, value); }
inline uint32_t load_acquire(const uint32_t* from) {
  std::this_thread::yield();
  return std::atomic_ref(*const_cast<uint32_t*>(from)).load(std::memory_order_acquire);
}
inline uint32_t load_live_word(const uint32_t* from) { return load_acquire(from); }
inline void store_live_word(uint32_t* to, uint32_t value) {
  std::atomic_ref(*to).store(value, std::memory_order_release);
}
inline void fence_all_gpus() {}
inline uint64_t nanoseconds() { return 0; }

}  // namespace nitinol::cuda
