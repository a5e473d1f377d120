// Programs that wait on the host for one call before they make the next, which others wait for.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "cluster.h"
#include "nccl.h"
#include "scarcity.h"

namespace nitinol::testing {
namespace {

struct Scene {
  ncclComm_t comms[2] = {};
  cudaStream_t stream = nullptr;
  float* data = nullptr;
};

Scene make_scene(int process, const ncclUniqueId& id) {
  Scene s;
  use_device_of(process);
  EXPECT_CALL(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&s.data), 4096));
  EXPECT_CALL(ncclCommInitRank(&s.comms[0], 2, id, process));
  EXPECT_CALL(ncclCommSplit(s.comms[0], 0, process, &s.comms[1], nullptr));
  for (const ncclComm_t comm : s.comms) {
    EXPECT_CALL(ncclAllReduce(s.data, s.data, 5, ncclFloat, ncclSum, comm, s.stream));
  }
  EXPECT_CALL(cudaStreamSynchronize(s.stream));
  return s;
}

void end_scene(const Scene& s, int failed) {
  for (int i = 0; i < 2; ++i) EXPECT_CALL(i == failed ? ncclCommAbort(s.comms[i]) : ncclCommDestroy(s.comms[i]));
  EXPECT_CALL(cudaStreamSynchronize(s.stream));
}

/// Which of the communicators has failed because of a circle.
int failed_one(const Scene& s) {
  ncclResult_t states[2] = {};
  while (states[0] == ncclSuccess && states[1] == ncclSuccess) {
    for (int i = 0; i < 2; ++i) EXPECT_CALL(ncclCommGetAsyncError(s.comms[i], &states[i]));
  }
  const int failed = states[0] == ncclSuccess ? 1 : 0;
  const std::string sentence = ncclGetLastError(s.comms[failed]);
  if (states[failed] != ncclInvalidUsage ||
      sentence.find("in a circle over waits on the host: rank ") == std::string::npos) {
    throw std::runtime_error(std::to_string(states[failed]) + ": " + sentence);
  }
  return failed;
}

using Wait = void (*)(const Scene& s, cudaEvent_t event);

void use_in_different_orders(int process, const ncclUniqueId& id, bool messages, Wait wait) {
  const Scene s = make_scene(process, id);
  cudaEvent_t event = nullptr;
  EXPECT_CALL(cudaEventCreate(&event));
  const ncclComm_t first = s.comms[process];
  const ncclComm_t second = s.comms[1 - process];
  const ncclResult_t called = messages ? ncclRecv(s.data, 10, ncclFloat, 1 - process, first, s.stream)
                                       : ncclAllReduce(s.data, s.data, 10, ncclFloat, ncclSum, first, s.stream);
  EXPECT_CALL(called);
  EXPECT_CALL(cudaEventRecord(event, s.stream));
  wait(s, event);
  const ncclResult_t then = messages ? ncclSend(s.data, 10, ncclFloat, 1 - process, second, s.stream)
                                     : ncclAllReduce(s.data, s.data, 10, ncclFloat, ncclSum, second, s.stream);
  if (then != ncclSuccess && then != ncclInvalidUsage) throw std::runtime_error(ncclGetLastError(nullptr));
  const int failed = failed_one(s);
  EXPECT_CALL(cudaStreamSynchronize(s.stream));
  end_scene(s, failed);
}

TEST(HostWait, OfTwoProgramsForDifferentCommunicatorsIsTold) {
#if !defined(NITINOL_VGPU)
  GTEST_SKIP() << "GPUs' programs wait in another library";
#endif
  if (!kThreadsAreKnown) GTEST_SKIP() << "there is another thread";
  const Wait waits[] = {
      [](const Scene& s, cudaEvent_t) { EXPECT_CALL(cudaStreamSynchronize(s.stream)); },
      [](const Scene&, cudaEvent_t event) { EXPECT_CALL(cudaEventSynchronize(event)); },
      [](const Scene&, cudaEvent_t) { EXPECT_CALL(cudaDeviceSynchronize()); },
  };
  for (const Wait wait : waits) {
    for (const bool messages : {false, true}) {
      EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
                  use_in_different_orders(process, id, messages, wait);
                }));
    }
  }
}

TEST(HostWait, OfOneThreadForOneOfItsRanksIsTold) {
#if !defined(NITINOL_VGPU)
  GTEST_SKIP() << "GPUs' programs wait in another library";
#endif
  if (!kThreadsAreKnown) GTEST_SKIP() << "there is another thread";
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              Scene s;
              EXPECT_CALL(ncclCommInitAll(s.comms, 2, nullptr));
              EXPECT_CALL(cudaSetDevice(0));
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&s.data), 4096));
              EXPECT_CALL(ncclAllReduce(s.data, s.data, 10, ncclFloat, ncclSum, s.comms[0], nullptr));
              EXPECT_CALL(cudaStreamSynchronize(nullptr));  // forgets that the other rank has not called
              EXPECT_CALL(failed_one(s) == 0 ? ncclSuccess : ncclInternalError);
              for (const ncclComm_t comm : s.comms) EXPECT_CALL(ncclCommAbort(comm));
            }));
}

/// Nobody knows what another thread will do.
TEST(HostWait, IsNoErrorIfAnotherThreadCallsLater) {
  EXPECT_EQ("", run_processes(2, [](int process, const ncclUniqueId& id) {
              const Scene s = make_scene(process, id);
              cudaStream_t other = nullptr;
              EXPECT_CALL(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
              std::thread late([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // far longer than a circle needs
                use_device_of(process);
                float* const data = s.data + 100;
                EXPECT_CALL(ncclAllReduce(data, data, 10, ncclFloat, ncclSum, s.comms[1 - process], other));
                EXPECT_CALL(cudaStreamSynchronize(other));
              });
              EXPECT_CALL(ncclAllReduce(s.data, s.data, 10, ncclFloat, ncclSum, s.comms[process], s.stream));
              EXPECT_CALL(cudaStreamSynchronize(s.stream));
              late.join();
              end_scene(s, -1);
            }));
}

/// One that works on the host meanwhile may come late.
TEST(HostWait, IsNoErrorIfTheOtherProgramComesLate) {
  EXPECT_EQ("", run_processes(2, [](int process, const ncclUniqueId& id) {
              const Scene s = make_scene(process, id);
              if (process == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
              for (const ncclComm_t comm : s.comms) {
                EXPECT_CALL(ncclAllReduce(s.data, s.data, 10, ncclFloat, ncclSum, comm, s.stream));
                EXPECT_CALL(cudaStreamSynchronize(s.stream));
              }
              end_scene(s, -1);
            }));
}

}  // namespace
}  // namespace nitinol::testing
