// A process that uses one GPU has a context on that GPU alone: each other takes hundreds of megabytes there.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <array>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "conformance/cluster.h"
#include "conformance/devices.h"
#include "device/driver_function.h"

namespace {

using namespace nitinol::testing;

/// The library's threads have looked at what goes on by then.
constexpr std::chrono::milliseconds kAWhile{300};

bool has_context(int device) {
  using GetState = int (*)(int device, unsigned* flags, int* active);
  const auto get_state = nitinol::driver_function<GetState>("cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int active = 0;
  if (get_state == nullptr || get_state(device, &flags, &active) != 0) throw std::runtime_error("no driver");
  return active != 0;
}

void must_be_on_its_device(int process, const char* when) {
  if (!has_context(process)) throw std::runtime_error(std::string("no context of its own ") + when);
  if (has_context(1 - process)) throw std::runtime_error(std::string("a context on the other device ") + when);
}

ncclComm_t make(const ncclUniqueId& id, int process, bool blocking) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t called = ncclCommInitRankConfig(&comm, 2, id, process, &config);
  EXPECT_CALL(settled(called, comm));
  return comm;
}

void add_up(ncclComm_t comm, char* data, size_t bytes) {
  EXPECT_CALL(settled(ncclAllReduce(data, data, bytes, ncclUint8, ncclSum, comm, nullptr), comm));
  EXPECT_CALL(cudaDeviceSynchronize());
}

void destroy(ncclComm_t comm) {
  EXPECT_CALL(settled(ncclCommFinalize(comm), comm));
  EXPECT_CALL(ncclCommDestroy(comm));
}

std::string run_with(bool blocking) {
  return run_processes(2, [&](int process, const ncclUniqueId& id) {
    constexpr size_t kBytes = size_t{48} << 20;
    use_device_of(process);
    char* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), kBytes));
    const ncclComm_t comm = make(id, process, blocking);
    must_be_on_its_device(process, "once the communicator is made");
    for (const size_t bytes : {size_t{8}, size_t{1} << 20, kBytes}) add_up(comm, data, bytes);
    std::this_thread::sleep_for(kAWhile);
    must_be_on_its_device(process, "after operations");
    destroy(comm);
    must_be_on_its_device(process, "at the end");
  });
}

TEST(Contexts, AreOnTheDeviceThatTheProcessUses) {
  if (devices_here() < 2) GTEST_SKIP() << "needs two GPUs";
  EXPECT_EQ("", run_with(true));
}

TEST(Contexts, OfOneThatDoesNotBlockToo) {
  if (devices_here() < 2) GTEST_SKIP() << "needs two GPUs";
  EXPECT_EQ("", run_with(false));
}

ncclComm_t child_of(ncclComm_t parent, bool blocking = true) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  ncclComm_t child = nullptr;
  const ncclResult_t called = ncclCommSplit(parent, 0, 0, &child, &config);
  expect_that(called == ncclSuccess || called == ncclInProgress, "no child");
  EXPECT_CALL(settled(ncclInProgress, child));
  return child;
}

/// A thread of the program's that has never chosen a device, as those are that watch or clean up: which one it is on
/// afterwards, -1 if it had trouble.
int device_after(const std::function<void()>& calls) {
  int device = -1;
  std::thread([&] {
    try {
      calls();
      if (cudaGetDevice(&device) != cudaSuccess) device = -1;
    } catch (const std::exception&) {
      device = -1;
    }
  }).join();
  return device;
}

TEST(Contexts, OfWhatThreadsCallThatHaveChosenNoDeviceToo) {
  if (devices_here() < 2) GTEST_SKIP() << "needs two GPUs";
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              use_device_of(process);
              char* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              cudaStream_t stream = nullptr;
              EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
              const ncclComm_t comm = make(id, process, true);
              const auto call = [&] {
                for (int i = 0; i < 3; ++i) EXPECT_CALL(ncclAllReduce(data, data, 8, ncclUint8, ncclSum, comm, stream));
              };
              expect_that(device_after(call) == 0, "another device than before");
              EXPECT_CALL(cudaStreamSynchronize(stream));
              must_be_on_its_device(process, "after calls of such a thread");
              for (const bool blocking : {true, false}) {
                const ncclComm_t child = child_of(comm, blocking);
                expect_that(device_after([&] { EXPECT_CALL(ncclCommAbort(child)); }) == 0,
                            "another device than before");
                must_be_on_its_device(process, "once such a thread has aborted a communicator");
              }
              expect_that(device_after([&] { destroy(comm); }) == 0, "another device than before");
              must_be_on_its_device(process, "once such a thread has destroyed the communicator");
            }));
}

/// What a group does for several communicators it does at the same time, on threads of the library's own.
TEST(Contexts, OfSeveralThatAGroupMakesAndDestroysToo) {
  if (devices_here() < 2) GTEST_SKIP() << "needs two GPUs";
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              use_device_of(process);
              const ncclComm_t parent = make(id, process, true);
              const ncclComm_t other = child_of(parent);
              std::array<ncclComm_t, 2> children{};
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclCommSplit(parent, 0, 0, &children[0], nullptr));
              EXPECT_CALL(ncclCommSplit(other, 0, 0, &children[1], nullptr));
              EXPECT_CALL(ncclGroupEnd());
              must_be_on_its_device(process, "once a group has made communicators");
              EXPECT_CALL(ncclGroupStart());
              for (const ncclComm_t comm : {children[0], children[1], other, parent})
                EXPECT_CALL(ncclCommDestroy(comm));
              EXPECT_CALL(ncclGroupEnd());
              must_be_on_its_device(process, "once a group has destroyed them");
            }));
}

}  // namespace
