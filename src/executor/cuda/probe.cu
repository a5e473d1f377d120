#include "executor/cuda/parameters.h"
#include "executor/cuda/probe.h"
#include "executor/cuda/ptx.h"

namespace nitinol::cuda {

namespace {

__global__ void probe(const __grid_constant__ QueueView queue, uint32_t* answers) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= queue.layout.ranks) return;
  // The last bytes of the head, which nothing else uses.
  uint32_t* word = reinterpret_cast<uint32_t*>(queue.region[peer] + queue.layout.slots_at) - 256 + queue.rank;
  const uint32_t pattern = 0x4e690000U + queue.rank;
  store_live_word(word, pattern);
  fence_all_gpus();
  answers[peer] = load_live_word(word) == pattern ? 1 : 0;
}

}  // namespace

const void* probe_kernel() { return reinterpret_cast<const void*>(&probe); }

}  // namespace nitinol::cuda
