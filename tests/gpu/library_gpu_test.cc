// The library on GPUs through its public calls; ranks share GPUs if there are fewer. What a missing rank leads to,
// graphs that outlive their communicator, and memory.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "communicator_ranks.h"
#include "nitinol.h"

namespace {

using namespace nitinol::gpu_testing;

TEST_F(Ranks, AMissingRankIsNamedWhenTheTimeIsUp) {
  make(2);
  if (IsSkipped()) return;
  NCCL_OK(nitinolCommSetTimeout(comms[0], 0.3));
  CUDA_OK(cudaSetDevice(device(0)));
  const auto start = Clock::now();
  NCCL_OK(ncclAllReduce(inputs[0], outputs[0], 1000, ncclInt, ncclSum, comms[0], streams[0]));
  CUDA_OK(cudaStreamSynchronize(streams[0]));
  EXPECT_LT(seconds_since(start), 20);
  ncclResult_t state = ncclSuccess;
  for (int i = 0; i < 500 && state == ncclSuccess; ++i) {
    NCCL_OK(ncclCommGetAsyncError(comms[0], &state));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(state, ncclRemoteError);
  const std::string sentence = ncclGetLastError(comms[0]);
  EXPECT_NE(sentence.find("rank 1 (host"), std::string::npos) << sentence;
  std::printf("%s\n", sentence.c_str());
}

/// The first rank goes on to the last call before the second makes the first one.
TEST_F(Ranks, OnOneGpuKernelsThatAreNewWaitForNoneThatRun) {
  if (gpus() > 1) GTEST_SKIP() << "each rank would have a GPU to itself";
  make(2);
  if (IsSkipped()) return;
  constexpr size_t kCount = 20'000;
  for (const ncclComm_t comm : comms) NCCL_OK(nitinolCommSetTimeout(comm, 10));
  for (size_t rank = 0; rank < 2; ++rank) {  // what is allocated at first use is not the subject
    CUDA_OK(cudaSetDevice(device(rank)));
    NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], kCount, ncclInt, ncclSum, comms[rank], streams[rank]));
    NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], 100, ncclInt, ncclSum, comms[rank], streams[rank]));
  }
  for (size_t rank = 0; rank < 2; ++rank) CUDA_OK(cudaStreamSynchronize(streams[rank]));
  for (size_t rank = 0; rank < 2; ++rank) {
    CUDA_OK(cudaSetDevice(device(rank)));
    for (const ncclDataType_t type : {ncclFloat, ncclBfloat16, ncclInt8, ncclDouble, ncclUint64}) {
      for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax}) {
        NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], kCount, type, op, comms[rank], streams[rank]));
      }
    }
    NCCL_OK(ncclAlltoAll(inputs[rank], outputs[rank], kCount, ncclFloat, comms[rank], streams[rank]));
    NCCL_OK(ncclAllGather(inputs[rank], outputs[rank], kCount, ncclFloat, comms[rank], streams[rank]));
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    ncclResult_t state = ncclSuccess;
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
    NCCL_OK(ncclCommGetAsyncError(comms[rank], &state));
    EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comms[rank]);
  }
}

/// So nothing has made a context its own.
TEST_F(Ranks, AThreadThatCallsNothingElseOfCudaMayLaunch) {
  make(1);
  if (IsSkipped()) return;
  const std::vector<int> sent(1000, 7);
  std::vector<int> got(sent.size());
  CUDA_OK(nitinol::copy_to_device(inputs[0], sent.data(), sent.size() * sizeof(int)));
  for (const cudaStream_t stream : {cudaStream_t{}, cudaStreamPerThread, streams[0]}) {
    CUDA_OK(cudaMemset(outputs[0], 0, got.size() * sizeof(int)));
    CUDA_OK(cudaDeviceSynchronize());
    std::thread([&] {
      NCCL_OK(ncclAllReduce(inputs[0], outputs[0], sent.size(), ncclInt, ncclSum, comms[0], stream));
    }).join();
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(got.data(), outputs[0], got.size() * sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT_EQ(got, sent);
  }
}

/// It waits for its own GPU, where a kernel waits for another rank.
TEST_F(Ranks, AThreadThatLoadsAKernelHoldsUpNoOther) {
  if (gpus() < 2) GTEST_SKIP() << "fewer than two GPUs here";
  make(std::min(gpus(), 8));
  for (const ncclComm_t comm : comms) NCCL_OK(nitinolCommSetTimeout(comm, 10));
  each([&](size_t rank) {
    constexpr size_t kCount = 20'000;
    const auto all_reduce = [&](ncclDataType_t type, ncclRedOp_t op) {
      return ncclAllReduce(inputs[rank], outputs[rank], kCount, type, op, comms[rank], streams[rank]);
    };
    NCCL_OK(all_reduce(ncclFloat, ncclSum));
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
    if (rank != 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    NCCL_OK(all_reduce(ncclFloat, ncclSum));
    for (const ncclRedOp_t op : {ncclProd, ncclMax}) NCCL_OK(all_reduce(ncclUint64, op));  // not loaded before
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
    ncclResult_t state = ncclSuccess;
    NCCL_OK(ncclCommGetAsyncError(comms[rank], &state));
    EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comms[rank]);
  });
}

TEST_F(Ranks, AbortFromAnotherThreadEndsAKernelThatWaits) {
  make(2);
  if (IsSkipped()) return;
  CUDA_OK(cudaSetDevice(device(0)));
  NCCL_OK(ncclAllReduce(inputs[0], outputs[0], 2000000, ncclInt, ncclSum, comms[0], streams[0]));
  EXPECT_EQ(cudaStreamQuery(streams[0]), cudaErrorNotReady);
  const auto start = Clock::now();
  std::thread([this] { EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess); }).join();
  comms.erase(comms.begin());
  CUDA_OK(cudaStreamSynchronize(streams[0]));
  EXPECT_LT(seconds_since(start), 10);
  std::printf("abort: %.3f s\n", seconds_since(start));
}

TEST_F(Ranks, WhoLeavesOneCommunicatorDoesNotWaitForTheKernelOfAnother) {
  make(2);
  if (IsSkipped()) return;
  std::vector<ncclComm_t> others(ranks());
  each([&](size_t rank) { NCCL_OK(ncclCommSplit(comms[rank], 0, static_cast<int>(rank), &others[rank], nullptr)); });
  each([&](size_t rank) {
    for (const ncclComm_t comm : {comms[rank], others[rank]}) {  // so that nothing is left to be allocated
      NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], 1000, ncclInt, ncclSum, comm, streams[rank]));
    }
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
  });
  CUDA_OK(cudaSetDevice(device(0)));
  NCCL_OK(ncclAllReduce(inputs[0], outputs[0], 1000, ncclInt, ncclSum, comms[0], streams[0]));
  const auto start = Clock::now();
  each([&](size_t rank) { EXPECT_EQ(rank == 0 ? ncclCommAbort(others[0]) : ncclCommDestroy(others[1]), ncclSuccess); });
  EXPECT_LT(seconds_since(start), 10);
  EXPECT_EQ(cudaStreamQuery(streams[0]), cudaErrorNotReady) << "the other kernel waits all the time";
  CUDA_OK(cudaSetDevice(device(1)));
  NCCL_OK(ncclAllReduce(inputs[1], outputs[1], 1000, ncclInt, ncclSum, comms[1], streams[1]));
  each([&](size_t rank) { CUDA_OK(cudaStreamSynchronize(streams[rank])); });
}

TEST_F(Ranks, AnAbortEndsGraphsThatWait) {
  make(2);
  if (IsSkipped()) return;
  constexpr size_t kCount = 5000;
  std::vector<cudaGraphExec_t> graphs(ranks());
  each([&](size_t rank) {
    cudaGraph_t graph = nullptr;
    capture_three(rank, kCount, graph);
    CUDA_OK(cudaGraphInstantiate(&graphs[rank], graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
  });
  CUDA_OK(cudaSetDevice(device(0)));
  CUDA_OK(cudaGraphLaunch(graphs[0], streams[0]));  // rank 1 never launches its own
  EXPECT_EQ(cudaStreamQuery(streams[0]), cudaErrorNotReady);
  const auto start = Clock::now();
  each([&](size_t rank) { EXPECT_EQ(ncclCommAbort(comms[rank]), ncclSuccess); });
  CUDA_OK(cudaStreamSynchronize(streams[0]));
  EXPECT_LT(seconds_since(start), 10);
  std::printf("abort with graphs: %.3f s\n", seconds_since(start));
  comms.clear();
  each([&](size_t rank) { CUDA_OK(cudaGraphExecDestroy(graphs[rank])); });
}

TEST_F(Ranks, AGraphMayOutliveItsCommunicator) {
  make(2);
  if (IsSkipped()) return;
  constexpr size_t kCount = 5000;
  std::vector<cudaGraphExec_t> graphs(ranks());
  each([&](size_t rank) {
    const std::vector<int> ones(kCount, static_cast<int>(rank) + 1);
    CUDA_OK(nitinol::copy_to_device(inputs[rank], ones.data(), kCount * sizeof(int)));
    cudaGraph_t graph = nullptr;
    capture_three(rank, kCount, graph);
    size_t nodes = 0;
    CUDA_OK(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 5U) << "a wait, three kernels, and beside them a record";
    CUDA_OK(cudaGraphInstantiate(&graphs[rank], graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
    // Two threads that launch graphs for the first time may do so into one queue of the GPU they share.
    CUDA_OK(cudaGraphUpload(graphs[rank], streams[rank]));
    NCCL_OK(ncclCommDestroy(comms[rank]));
  });
  each([&](size_t rank) {
    for (int i = 0; i < 5; ++i) CUDA_OK(cudaGraphLaunch(graphs[rank], streams[rank]));
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
    std::vector<int> got(kCount);
    CUDA_OK(cudaMemcpy(got.data(), outputs[rank], kCount * sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT_EQ(got, std::vector<int>(kCount, 3));
    CUDA_OK(cudaGraphExecDestroy(graphs[rank]));
  });
  comms.clear();
}

TEST_F(Ranks, SendsAndReceivesInACircleAreTold) {
  make(2);
  if (IsSkipped()) return;
  const auto start = Clock::now();
  each([&](size_t rank) {
    const int other = rank == 0 ? 1 : 0;
    ncclResult_t state = ncclRecv(outputs[rank], 100, ncclInt, other, comms[rank], streams[rank]);
    if (state == ncclSuccess) state = ncclSend(inputs[rank], 100, ncclInt, other, comms[rank], streams[rank]);
    if (state == ncclSuccess) state = await_failure(rank);
    EXPECT_EQ(state, ncclInvalidUsage);
    const std::string sentence = ncclGetLastError(comms[rank]);
    EXPECT_NE(sentence.find("wait for each other in a circle"), std::string::npos) << sentence;
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
  });
  std::printf("noticed after %.3f s\n", seconds_since(start));
}

TEST_F(Ranks, MemoryOfNcclMemAllocWorks) {
  make(2);
  if (IsSkipped()) return;
  void* memory = nullptr;
  CUDA_OK(cudaSetDevice(device(0)));
  NCCL_OK(ncclMemAlloc(&memory, 1000001));
  CUDA_OK(nitinol::set_on_device(memory, 7, 1000001));
  each([&](size_t rank) {
    void* const buffer = rank == 0 ? memory : outputs[rank];
    NCCL_OK(ncclBroadcast(buffer, buffer, 1000001, ncclInt8, 0, comms[rank], streams[rank]));
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
  });
  std::vector<char> got(1000001);
  CUDA_OK(cudaMemcpy(got.data(), outputs[1], got.size(), cudaMemcpyDeviceToHost));
  EXPECT_EQ(got, std::vector<char>(1000001, 7));
  NCCL_OK(ncclMemFree(memory));
}

// CUDA forbids to wait for a device on which a stream is captured.
TEST_F(Ranks, MemoryOfNcclMemAllocComesAndGoesDuringACapture) {
  make(1);
  if (IsSkipped()) return;
  CUDA_OK(cudaSetDevice(device(0)));
  void* before = nullptr;
  void* during = nullptr;
  NCCL_OK(ncclMemAlloc(&before, 4096));
  CUDA_OK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeGlobal));
  NCCL_OK(ncclMemAlloc(&during, 4096));
  NCCL_OK(ncclMemFree(before));
  NCCL_OK(ncclMemFree(during));
  cudaGraph_t graph = nullptr;
  CUDA_OK(cudaStreamEndCapture(streams[0], &graph));
  CUDA_OK(cudaGraphDestroy(graph));
}

/// The environment of a program that is started with the library preloaded, by a name that is looked up in the folder.
std::string environment_with_preloaded(const std::string& library, const std::string& folder) {
  const std::string command =
      "env -u CUDA_DEVICE_MAX_CONNECTIONS LD_LIBRARY_PATH='" + folder + "' LD_PRELOAD='" + library + "' env";
  std::string text;
  std::FILE* const output = ::popen(command.c_str(), "r");
  if (output == nullptr) return text;
  for (int c = std::fgetc(output); c != EOF; c = std::fgetc(output)) text += static_cast<char>(c);
  ::pclose(output);
  return text;
}

/// Who sets another number unless there is one would not.
TEST(HardwareQueues, AreNotAskedForWhereTheLibraryIsPreloaded) {
  EXPECT_NE(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), nullptr) << "here it is not";
  ::Dl_info library{};
  ASSERT_NE(::dladdr(reinterpret_cast<void*>(ncclGetVersion), &library), 0);
  const std::string path = library.dli_fname;
  const size_t slash = path.rfind('/');
  ASSERT_NE(slash, std::string::npos) << path;
  for (const std::string& name : {path, path.substr(slash + 1)}) {
    const std::string environment = environment_with_preloaded(name, path.substr(0, slash));
    EXPECT_NE(environment.find("LD_PRELOAD=" + name), std::string::npos) << environment;
    EXPECT_EQ(environment.find("CUDA_DEVICE_MAX_CONNECTIONS"), std::string::npos) << environment;
  }
}

}  // namespace
