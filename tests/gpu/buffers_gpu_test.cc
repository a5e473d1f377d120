// Users' buffers in all kinds of memory that a GPU can read and write; nothing is registered.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "communicator_ranks.h"

namespace {

using namespace nitinol::gpu_testing;

/// A kind of memory: how to get and how to free it.
struct Kind {
  std::string name;
  std::function<void(void**, size_t)> allocate;
  std::function<void(void*, size_t)> release;
};

std::vector<Kind> kinds() {
  const auto device_free = [](void* p, size_t) { CUDA_OK(cudaFree(p)); };
  const auto host_free = [](void* p, size_t) { CUDA_OK(cudaFreeHost(p)); };
  return {
      {"cudaMalloc", [](void** p, size_t n) { CUDA_OK(cudaMalloc(p, n)); }, device_free},
      {"cudaMallocManaged", [](void** p, size_t n) { CUDA_OK(cudaMallocManaged(p, n)); }, device_free},
      {"cudaMallocAsync",
       [](void** p, size_t n) {
         CUDA_OK(cudaMallocAsync(p, n, nullptr));
         CUDA_OK(cudaStreamSynchronize(nullptr));
       },
       device_free},
      {"cudaHostAlloc", [](void** p, size_t n) { CUDA_OK(cudaHostAlloc(p, n, cudaHostAllocMapped)); }, host_free},
      {"cudaHostRegister",
       [](void** p, size_t n) {
         *p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
         ASSERT_NE(*p, MAP_FAILED);
         CUDA_OK(cudaHostRegister(*p, n, cudaHostRegisterMapped));
       },
       [](void* p, size_t n) {
         CUDA_OK(cudaHostUnregister(p));
         munmap(p, n);
       }},
      {"ncclMemAlloc", [](void** p, size_t n) { NCCL_OK(ncclMemAlloc(p, n)); },
       [](void* p, size_t) { NCCL_OK(ncclMemFree(p)); }},
  };
}

class Buffers : public Ranks {
 protected:
  Buffers() { setenv("NCCL_CHECK_POINTERS", "1", 1); }  // every call looks at its buffers
  ~Buffers() override { unsetenv("NCCL_CHECK_POINTERS"); }

  static int value(size_t rank, size_t i) { return static_cast<int>(i % 1000 * (rank + 1)); }

  /// What the ranks do with inputs of one kind and outputs of another. Nobody allocates or frees while others' kernels
  /// run, for which CUDA may wait.
  void expect_right(const Kind& in, const Kind& out, size_t count) {
    const size_t bytes = count * ranks() * sizeof(int);
    std::vector<void*> from(ranks());
    std::vector<void*> to(ranks());
    each([&](size_t rank) {
      in.allocate(&from[rank], bytes);
      out.allocate(&to[rank], bytes);
      std::vector<int> data(count);
      for (size_t i = 0; i < count; ++i) data[i] = value(rank, i);
      CUDA_OK(cudaMemcpy(from[rank], data.data(), count * sizeof(int), cudaMemcpyDefault));
      CUDA_OK(cudaMemset(to[rank], 0xee, bytes));
      CUDA_OK(cudaDeviceSynchronize());
    });
    const std::string how = " of " + std::to_string(count) + " from " + in.name + " to " + out.name;
    each([&](size_t rank) { use(rank, from[rank], to[rank], count, how); });
    each([&](size_t rank) {
      in.release(from[rank], bytes);
      out.release(to[rank], bytes);
    });
  }

 private:
  void use(size_t rank, const void* input, void* output, size_t count, const std::string& how) const {
    const cudaStream_t stream = streams[rank];
    const ncclComm_t comm = comms[rank];
    const size_t other = (rank + 1) % ranks();
    NCCL_OK(ncclAllReduce(input, output, count, ncclInt, ncclSum, comm, stream));
    expect_output(rank, output, count, "all-reduce" + how, [](size_t i) { return value(0, i) + value(1, i); });
    NCCL_OK(ncclAllGather(input, output, count, ncclInt, comm, stream));
    expect_output(rank, output, 2 * count, "all-gather" + how, [&](size_t i) { return value(i / count, i % count); });
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclSend(input, count, ncclInt, static_cast<int>(other), comm, stream));
    NCCL_OK(ncclRecv(output, count, ncclInt, static_cast<int>(other), comm, stream));
    NCCL_OK(ncclGroupEnd());
    expect_output(rank, output, count, "messages" + how, [&](size_t i) { return value(other, i); });
  }
  /// Poisons it afterwards.
  void expect_output(size_t rank, void* output, size_t count, const std::string& what,
                     const std::function<int(size_t)>& expected) const {
    std::vector<int> found(count);
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
    CUDA_OK(cudaMemcpyAsync(found.data(), output, count * sizeof(int), cudaMemcpyDefault, streams[rank]));
    CUDA_OK(cudaMemsetAsync(output, 0xee, count * sizeof(int), streams[rank]));
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) wrong += found[i] != expected(i) ? 1 : 0;
    EXPECT_EQ(wrong, 0) << what;
  }
};

/// What cannot be all there is refused before anything is launched.
TEST_F(Buffers, ThatEndTooEarlyAreRefused) {
  make(2);
  if (IsSkipped()) return;
  constexpr size_t kSmall = 4000;
  for (const Kind& kind : kinds()) {
    if (kind.name.starts_with("cudaHost")) continue;  // it may be registered piece by piece
    void* buffer = nullptr;
    each([&](size_t rank) {
      if (rank == 0) kind.allocate(&buffer, kSmall);
    });
    // That comes in pages of some megabytes.
    const size_t beyond = kind.name == "ncclMemAlloc" ? size_t{1} << 30 : kSmall / sizeof(int) + 1;
    EXPECT_EQ(ncclAllReduce(buffer, buffer, beyond, ncclInt, ncclSum, comms[0], streams[0]), ncclInvalidArgument)
        << kind.name;
    EXPECT_NE(std::string(ncclGetLastError(comms[0])).find("its memory ends after"), std::string::npos) << kind.name;
    each([&](size_t rank) {
      if (rank == 0) kind.release(buffer, kSmall);
    });
  }
}

TEST_F(Buffers, MayLieInAnyMemoryThatGpusReach) {
  make(2);
  if (IsSkipped()) return;
  const std::vector<Kind> all = kinds();
  // By LL, LL128 and Simple.
  for (const size_t count : {size_t{10}, size_t{100'003}, size_t{5'000'001}}) {
    for (size_t i = 0; i < all.size(); ++i) expect_right(all[i], all[(i + 1) % all.size()], count);
  }
}

}  // namespace
