// Stands in for src/executor/cuda/ptx.h where the kernels' data path runs on the host, one thread after the other:
// memory is just memory, and a warp agrees with itself.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <utility>

struct Position {
  unsigned x = 0;
  unsigned y = 0;
};
inline Position threadIdx;
inline Position blockIdx;
inline Position blockDim;

using std::min;

inline void __syncwarp() {}
inline void __syncthreads() {}
inline void __threadfence_block() {}
inline int __any_sync(unsigned, int mine) { return mine; }
inline int __all_sync(unsigned, int mine) { return mine; }
inline unsigned __shfl_xor_sync(unsigned, unsigned mine, int) { return mine; }
inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }
inline unsigned atomicOr(unsigned* word, unsigned bits) { return std::exchange(*word, *word | bits); }
inline unsigned atomicAdd(unsigned* word, unsigned more) { return std::exchange(*word, *word + more); }
inline unsigned atomicExch(unsigned* word, unsigned value) { return std::exchange(*word, value); }
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
inline uint32_t load_live_word(const uint32_t* from) { return *from; }
inline void store_live_pair(void* to, uint32_t first, uint32_t second) {
  const uint32_t pair[] = {first, second};
  std::memcpy(to, pair, sizeof(pair));
}
inline void store_live_word(uint32_t* to, uint32_t value) { *to = value; }
inline uint32_t load_acquire(const uint32_t* from) { return *from; }
inline void fence_all_gpus() {}
inline void sync_some(uint32_t, uint32_t) {}
/// What happens whenever whoever waits looks at the clock, if anything does.
inline std::function<void()> at_each_look;
inline uint64_t clock = 0;
inline uint64_t nanoseconds() {
  if (at_each_look) at_each_look();
  return clock;
}

}  // namespace nitinol::cuda
