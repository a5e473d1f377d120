// The library on GPUs through its public calls; ranks share GPUs if there are fewer. What a missing rank leads to,
// graphs that outlive their communicator, memory, and random operations for a while (SOAK_SECONDS, 5 if not set).
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "nccl.h"
#include "nitinol.h"

namespace {

using Clock = std::chrono::steady_clock;

#define CUDA_OK(call) ASSERT_EQ(call, cudaSuccess)
#define NCCL_OK(call) ASSERT_EQ(call, ncclSuccess) << ncclGetLastError(nullptr)

int gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// A communicator of `ranks` ranks in this process, with a stream and two buffers each.
class Ranks : public testing::Test {
 protected:
  static constexpr size_t kBytes = size_t{8} << 20;

  void make(int ranks) {
    if (gpus() == 0) GTEST_SKIP() << "no GPU here";
    std::vector<int> devices(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) devices[static_cast<size_t>(rank)] = rank % gpus();
    comms.resize(static_cast<size_t>(ranks));
    for (const int device : devices) {
      cudaStream_t stream = nullptr;
      void* input = nullptr;
      void* output = nullptr;
      CUDA_OK(cudaSetDevice(device));
      CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      CUDA_OK(cudaMalloc(&input, kBytes));
      CUDA_OK(cudaMalloc(&output, kBytes));
      streams.push_back(stream);
      inputs.push_back(static_cast<int*>(input));
      outputs.push_back(static_cast<int*>(output));
    }
    const auto start = Clock::now();
    NCCL_OK(ncclCommInitAll(comms.data(), ranks, devices.data()));
    std::printf("communicator of %d ranks on %d GPUs: %.3f s\n", ranks, gpus(), seconds_since(start));
  }
  void TearDown() override {
    for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    for (size_t rank = 0; rank < streams.size(); ++rank) {
      EXPECT_EQ(cudaStreamDestroy(streams[rank]), cudaSuccess);
      EXPECT_EQ(cudaFree(inputs[rank]), cudaSuccess);
      EXPECT_EQ(cudaFree(outputs[rank]), cudaSuccess);
    }
  }
  size_t ranks() const { return comms.size(); }
  int device(size_t rank) const { return static_cast<int>(rank) % gpus(); }

  /// Runs each rank's part in a thread of its own.
  void each(const std::function<void(size_t)>& part) const {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        ASSERT_EQ(cudaSetDevice(device(rank)), cudaSuccess);
        part(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<ncclComm_t> comms;
  std::vector<cudaStream_t> streams;
  std::vector<int*> inputs;
  std::vector<int*> outputs;
};

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

TEST_F(Ranks, AGraphMayOutliveItsCommunicator) {
  make(2);
  if (IsSkipped()) return;
  constexpr size_t kCount = 5000;
  std::vector<cudaGraphExec_t> graphs(ranks());
  each([&](size_t rank) {
    const std::vector<int> ones(kCount, static_cast<int>(rank) + 1);
    CUDA_OK(cudaMemcpy(inputs[rank], ones.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
    cudaGraph_t graph = nullptr;
    CUDA_OK(cudaStreamBeginCapture(streams[rank], cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 3; ++i) {
      NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], kCount, ncclInt, ncclSum, comms[rank], streams[rank]));
    }
    CUDA_OK(cudaStreamEndCapture(streams[rank], &graph));
    size_t nodes = 0;
    CUDA_OK(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 5U) << "a wait, three kernels, and beside them a record";
    CUDA_OK(cudaGraphInstantiate(&graphs[rank], graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
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
    while (state == ncclSuccess && seconds_since(start) < 20) NCCL_OK(ncclCommGetAsyncError(comms[rank], &state));
    EXPECT_EQ(state, ncclInvalidUsage);
    const std::string sentence = ncclGetLastError(comms[rank]);
    EXPECT_NE(sentence.find("wait for each other in a circle"), std::string::npos) << sentence;
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
  });
  std::printf("noticed after %.3f s\n", seconds_since(start));
}

TEST_F(Ranks, CallsInGraphsThatDoNotMatchAreTold) {
  make(2);
  if (IsSkipped()) return;
  std::vector<cudaGraphExec_t> graphs(ranks());
  each([&](size_t rank) {
    cudaGraph_t graph = nullptr;
    CUDA_OK(cudaStreamBeginCapture(streams[rank], cudaStreamCaptureModeThreadLocal));
    const int root = rank == 0 ? 1 : 0;  // each waits for the other
    NCCL_OK(ncclBroadcast(inputs[rank], outputs[rank], 100, ncclInt, root, comms[rank], streams[rank]));
    CUDA_OK(cudaStreamEndCapture(streams[rank], &graph));
    CUDA_OK(cudaGraphInstantiate(&graphs[rank], graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
  });
  for (const ncclComm_t comm : comms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ncclResult_t state = ncclSuccess;
    NCCL_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess) << "nothing has run yet";
  }
  const auto start = Clock::now();
  each([&](size_t rank) {
    CUDA_OK(cudaGraphLaunch(graphs[rank], streams[rank]));
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess && seconds_since(start) < 20) NCCL_OK(ncclCommGetAsyncError(comms[rank], &state));
    EXPECT_EQ(state, ncclInvalidUsage);
    const std::string sentence = ncclGetLastError(comms[rank]);
    EXPECT_NE(sentence.find("among the calls captured into graphs"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("root 1"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("root 0"), std::string::npos) << sentence;
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
  });
  std::printf("noticed after %.3f s\n", seconds_since(start));
  for (const cudaGraphExec_t graph : graphs) CUDA_OK(cudaGraphExecDestroy(graph));
}

TEST_F(Ranks, MemoryOfNcclMemAllocWorks) {
  make(2);
  if (IsSkipped()) return;
  void* memory = nullptr;
  CUDA_OK(cudaSetDevice(device(0)));
  NCCL_OK(ncclMemAlloc(&memory, 1000001));
  CUDA_OK(cudaMemset(memory, 7, 1000001));
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

/// One random operation, the same on every rank, with integers so that every order gives the same.
struct Operation {
  int what = 0;
  size_t count = 0;
  size_t root = 0;
  int repeats = 1;
  bool in_graph = false;
};

Operation draw(std::mt19937& random, size_t ranks) {
  Operation one;
  one.what = static_cast<int>(random() % 6);
  const size_t most = size_t{1} << (random() % 18);
  one.count = 1 + random() % most;
  one.root = random() % ranks;
  one.repeats = 1 + static_cast<int>(random() % 3);
  one.in_graph = random() % 4 == 0;
  return one;
}

class Soak : public Ranks {
 protected:
  /// Ranks that share a GPU must not copy, allocate or make graphs while one's kernel waits for another's.
  std::unique_ptr<std::barrier<>> together;

  int value(size_t rank, size_t i) const { return static_cast<int>(i % 1000 + 3 * rank); }

  ncclResult_t call(const Operation& one, size_t rank) {
    int* const in = inputs[rank];
    int* const out = outputs[rank];
    const auto root = static_cast<int>(one.root);
    const auto n = static_cast<int>(ranks());
    const auto me = static_cast<int>(rank);
    switch (one.what) {
      case 0: return ncclAllReduce(in, out, one.count, ncclInt, ncclSum, comms[rank], streams[rank]);
      case 1: return ncclBroadcast(in, out, one.count, ncclInt, root, comms[rank], streams[rank]);
      case 2: return ncclReduce(in, out, one.count, ncclInt, ncclMax, root, comms[rank], streams[rank]);
      case 3: return ncclAllGather(in, out, one.count, ncclInt, comms[rank], streams[rank]);
      case 4: return ncclReduceScatter(in, out, one.count, ncclInt, ncclSum, comms[rank], streams[rank]);
      case 5:
        ncclGroupStart();
        ncclSend(in, one.count, ncclInt, (me + 1) % n, comms[rank], streams[rank]);
        ncclRecv(out, one.count, ncclInt, (me + n - 1) % n, comms[rank], streams[rank]);
        return ncclGroupEnd();
    }
    return ncclInternalError;
  }
  std::vector<int> expected(const Operation& one, size_t rank) const {
    const size_t n = ranks();
    std::vector<int> want(one.what == 3 ? n * one.count : one.what == 2 && rank != one.root ? 0 : one.count);
    for (size_t i = 0; i < want.size(); ++i) {
      int sum = 0;
      for (size_t r = 0; r < n; ++r) sum += value(r, one.what == 4 ? rank * one.count + i : i);
      switch (one.what) {
        case 0:
        case 4: want[i] = sum; break;
        case 1: want[i] = value(one.root, i); break;
        case 2: want[i] = value(n - 1, i); break;
        case 3: want[i] = value(i / one.count, i % one.count); break;
        case 5: want[i] = value((rank + n - 1) % n, i); break;
        default: break;
      }
    }
    return want;
  }
  void run(const Operation& one, size_t rank) {
    const std::vector<int> want = expected(one, rank);
    CUDA_OK(cudaMemset(outputs[rank], 0xee, (want.size() + 1) * sizeof(int)));
    CUDA_OK(cudaDeviceSynchronize());
    together->arrive_and_wait();
    if (one.in_graph) {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t instance = nullptr;
      CUDA_OK(cudaStreamBeginCapture(streams[rank], cudaStreamCaptureModeThreadLocal));
      for (int i = 0; i < one.repeats; ++i) NCCL_OK(call(one, rank));
      CUDA_OK(cudaStreamEndCapture(streams[rank], &graph));
      CUDA_OK(cudaGraphInstantiate(&instance, graph, 0));
      CUDA_OK(cudaGraphDestroy(graph));
      together->arrive_and_wait();
      for (int i = 0; i < 3; ++i) CUDA_OK(cudaGraphLaunch(instance, streams[rank]));
      CUDA_OK(cudaStreamSynchronize(streams[rank]));
      together->arrive_and_wait();
      CUDA_OK(cudaGraphExecDestroy(instance));
    } else {
      together->arrive_and_wait();
      for (int i = 0; i < one.repeats; ++i) NCCL_OK(call(one, rank));
    }
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
    together->arrive_and_wait();
    std::vector<int> got(want.size() + 1);
    CUDA_OK(cudaMemcpy(got.data(), outputs[rank], got.size() * sizeof(int), cudaMemcpyDeviceToHost));
    EXPECT_EQ(got.back(), static_cast<int>(0xeeeeeeee)) << "beyond the end";
    got.pop_back();
    if (got != want) {
      ADD_FAILURE() << "operation " << one.what << " of " << one.count << " root " << one.root << " rank " << rank
                    << (one.in_graph ? " in a graph" : "");
    }
  }
};

TEST_F(Soak, RandomOperationsGiveWhatTheyMust) {
  make(std::max(4, gpus()));
  if (IsSkipped()) return;
  together = std::make_unique<std::barrier<>>(static_cast<std::ptrdiff_t>(ranks()));
  const char* const text = std::getenv("SOAK_SECONDS");
  const double seconds = text == nullptr ? 5 : std::atof(text);
  const auto start = Clock::now();
  std::atomic<bool> enough{false};
  std::atomic<size_t> done{0};
  each([&](size_t rank) {
    std::vector<int> data(kBytes / sizeof(int));
    for (size_t i = 0; i < data.size(); ++i) data[i] = value(rank, i);
    CUDA_OK(cudaMemcpy(inputs[rank], data.data(), kBytes, cudaMemcpyHostToDevice));
    NCCL_OK(nitinolCommSetTimeout(comms[rank], 20));  // after a failure the others are not to wait for ever
    std::mt19937 random(4711);
    while (!enough) {
      run(draw(random, ranks()), rank);
      if (rank == 0) {
        ++done;
        enough = HasFailure() || seconds_since(start) > seconds;
      }
      together->arrive_and_wait();
    }
  });
  std::printf("%zu operations\n", done.load());
}

}  // namespace
