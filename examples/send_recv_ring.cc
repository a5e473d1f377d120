// Sends and receives: blocks travel around a ring of devices, one step per group, until they are back where they
// started.
#include <utility>
#include <vector>

#include "check.h"

namespace {

constexpr size_t kCount = 12345;

// One device and its place in the ring.
struct Rank {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* held = nullptr;
  float* arriving = nullptr;
};

// Every device sends what it holds to the next one. The group lets all sends and receives run at the same time.
void step(std::vector<Rank>& ring) {
  const int size = static_cast<int>(ring.size());
  CHECK_NCCL(ncclGroupStart());
  for (int i = 0; i < size; ++i) {
    Rank& rank = ring[static_cast<size_t>(i)];
    CHECK_NCCL(ncclSend(rank.held, kCount, ncclFloat, (i + 1) % size, rank.comm, rank.stream));
    CHECK_NCCL(ncclRecv(rank.arriving, kCount, ncclFloat, (i + size - 1) % size, rank.comm, rank.stream));
  }
  CHECK_NCCL(ncclGroupEnd());
  for (Rank& rank : ring) std::swap(rank.held, rank.arriving);
}

void expect_blocks(const std::vector<Rank>& ring, int steps) {
  const int size = static_cast<int>(ring.size());
  for (int i = 0; i < size; ++i) {
    const Rank& rank = ring[static_cast<size_t>(i)];
    CHECK_CUDA(cudaSetDevice(i));
    CHECK_CUDA(cudaStreamSynchronize(rank.stream));
    expect_all(rank.held, kCount, static_cast<float>(((i - steps) % size + size) % size), "block on its way");
  }
}

}  // namespace

int main() {
  int devices = 0;
  CHECK_CUDA(cudaGetDeviceCount(&devices));
  std::vector<ncclComm_t> comms(static_cast<size_t>(devices));
  CHECK_NCCL(ncclCommInitAll(comms.data(), devices, nullptr));
  std::vector<Rank> ring(static_cast<size_t>(devices));
  for (int i = 0; i < devices; ++i) {
    Rank& rank = ring[static_cast<size_t>(i)];
    CHECK_CUDA(cudaSetDevice(i));
    CHECK_CUDA(cudaStreamCreate(&rank.stream));
    rank.comm = comms[static_cast<size_t>(i)];
    rank.held = new_buffer(kCount, static_cast<float>(i));
    rank.arriving = new_buffer(kCount, -1);
  }

  for (int steps = 1; steps <= devices; ++steps) {
    step(ring);
    expect_blocks(ring, steps);
  }

  for (int i = 0; i < devices; ++i) {
    Rank& rank = ring[static_cast<size_t>(i)];
    CHECK_CUDA(cudaSetDevice(i));
    CHECK_NCCL(ncclCommDestroy(rank.comm));
    CHECK_CUDA(cudaFree(rank.held));
    CHECK_CUDA(cudaFree(rank.arriving));
    CHECK_CUDA(cudaStreamDestroy(rank.stream));
  }
  printf("OK: blocks went round a ring of %d devices\n", devices);
  return 0;
}
