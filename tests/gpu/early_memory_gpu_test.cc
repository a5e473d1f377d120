// With NCCL_RUNTIME_CONNECT=0 no memory goes into communication once the communicator is there.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdlib>
#include <string>

#include "conformance/cluster.h"
#include "conformance/devices.h"

namespace {

using namespace nitinol::testing;

constexpr size_t kMost = size_t{32} << 20;  // bytes
/// What CUDA allocates for kernels counts, too.
constexpr size_t kLittle = size_t{4} << 20;

size_t free_bytes() {
  size_t free = 0;
  size_t total = 0;
  EXPECT_CALL(cudaMemGetInfo(&free, &total));
  return free;
}

/// Of whatever goes its own way: each kind, short and long.
void operate(ncclComm_t comm, int rank, char* in, char* out) {
  for (size_t count = 64; 8 * count <= kMost; count *= 4) {
    EXPECT_CALL(ncclAllReduce(in, out, 2 * count, ncclFloat, ncclSum, comm, nullptr));
    EXPECT_CALL(ncclAllGather(in, out, count, ncclFloat, comm, nullptr));
    EXPECT_CALL(ncclReduceScatter(in, out, count, ncclFloat, ncclSum, comm, nullptr));
    EXPECT_CALL(ncclBroadcast(in, out, 2 * count, ncclFloat, 0, comm, nullptr));
    EXPECT_CALL(ncclReduce(in, out, 2 * count, ncclFloat, ncclSum, 1, comm, nullptr));
    EXPECT_CALL(ncclAlltoAll(in, out, count, ncclFloat, comm, nullptr));
    EXPECT_CALL(ncclGroupStart());
    EXPECT_CALL(ncclSend(in, count, ncclFloat, 1 - rank, comm, nullptr));
    EXPECT_CALL(ncclRecv(out, count, ncclFloat, 1 - rank, comm, nullptr));
    EXPECT_CALL(ncclGroupEnd());
  }
  EXPECT_CALL(cudaDeviceSynchronize());
}

void must_take_memory(bool early, int rank, const ncclUniqueId& id) {
  use_device_of(rank);
  char* in = nullptr;
  char* out = nullptr;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&in), kMost));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&out), kMost));
  ncclComm_t comm = nullptr;
  EXPECT_CALL(ncclCommInitRank(&comm, 2, id, rank));
  const size_t before = free_bytes();
  operate(comm, rank, in, out);
  const size_t after = free_bytes();
  const bool has_more = before > after + kLittle;
  expect_that(has_more != early, "free: " + std::to_string(before) + " bytes, then " + std::to_string(after));
  EXPECT_CALL(ncclCommDestroy(comm));
}

class EarlyMemory : public testing::TestWithParam<bool> {};

TEST_P(EarlyMemory, IsAllThereIsWhereThatIsAskedFor) {
  if (devices_here() < 2) GTEST_SKIP() << "needs two GPUs";
  const bool early = GetParam();
  setenv("NCCL_RUNTIME_CONNECT", early ? "0" : "1", 1);
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) { must_take_memory(early, rank, id); }));
  unsetenv("NCCL_RUNTIME_CONNECT");
}

INSTANTIATE_TEST_SUITE_P(Connect, EarlyMemory, testing::Bool());

}  // namespace
