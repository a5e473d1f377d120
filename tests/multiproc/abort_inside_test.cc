// An abort of a communicator while another thread of the rank is in CUDA for longer than an abort waits.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "cluster.h"
#include "held.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

thread_local bool stays_inside = false;
std::atomic<bool> is_inside{false};
std::atomic<bool> may_go_on{false};

void wait_for(const std::atomic<bool>& flag) {
  while (!flag) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

// Instead of that of the virtual GPUs, which it calls.
extern "C" __attribute__((visibility("default"))) cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  static const auto original = reinterpret_cast<decltype(&cudaEventRecord)>(dlsym(RTLD_NEXT, "cudaEventRecord"));
  if (stays_inside) {
    is_inside = true;
    wait_for(may_go_on);
  }
  return original(event, stream);
}

namespace {

constexpr int kRanks = 2;

ncclComm_t made(int rank, const ncclUniqueId& id) {
  ncclComm_t comm = nullptr;
  EXPECT_CALL(ncclCommInitRank(&comm, kRanks, id, rank));
  return comm;
}

void all_reduce(ncclComm_t comm) {
  float* data = nullptr;
  cudaStream_t stream = nullptr;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
  EXPECT_CALL(cudaStreamCreate(&stream));
  static_cast<void>(ncclAllReduce(data, data, 16, ncclFloat, ncclSum, comm, stream));
  EXPECT_CALL(cudaStreamSynchronize(stream));
  EXPECT_CALL(cudaStreamDestroy(stream));
  EXPECT_CALL(cudaFree(data));
}

void abort_while_a_thread_is_inside(ncclComm_t comm) {
  std::thread caller([comm] {
    use_device_of(0);
    stays_inside = true;
    all_reduce(comm);
  });
  wait_for(is_inside);
  EXPECT_CALL(ncclCommAbort(comm));
  may_go_on = true;
  caller.join();
}

TEST(AbortOfARankThatIsInCuda, KeepsNothingOnceTheCallHasReturned) {
  const SharedCount aborted;
  const SharedCount warm;
  EXPECT_EQ("", run_processes(kRanks, [&](int rank, const ncclUniqueId& id) {
              use_device_of(rank);
              const ncclComm_t first = made(rank, id);  // what comes with it the process has for good
              all_reduce(first);
              warm.meet(kRanks);
              const Held before = held_in_quiet();
              ncclComm_t second = nullptr;
              EXPECT_CALL(ncclCommSplit(first, 0, rank, &second, nullptr));
              if (rank == 0) {
                abort_while_a_thread_is_inside(second);
                aborted.add();
              } else {
                aborted.wait_for(1);
                EXPECT_CALL(ncclCommAbort(second));
              }
              const std::string grown = grown_since(before);
              expect_that(grown.empty(), grown);
              EXPECT_CALL(ncclCommDestroy(first));
            }));
}

}  // namespace
}  // namespace nitinol::testing
