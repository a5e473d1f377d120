// Streams: order, asynchrony, the default streams, waiting, and the engine beneath.
#include <atomic>

#include "vgpu/test_support.h"

namespace nitinol::vgpu::test {
namespace {

TEST(Streams, RunWorkInOrder) {
  StreamOwner stream;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    enqueue(stream, [&order, i] { order.push_back(i); });
  }
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_CUDA(cudaStreamQuery(stream));
}

TEST(Streams, ABlockedHostFunctionHoldsBackWhatFollows) {
  StreamOwner stream;
  DeviceArray<int> array(1);
  array.set({1});
  int* host = nullptr;
  ASSERT_CUDA(cudaMallocHost(&host, sizeof(int)));
  *host = 7;
  Gate gate;
  enqueue_gate(stream, gate);
  ASSERT_CUDA(cudaMemcpyAsync(host, array.get(), sizeof(int), cudaMemcpyDeviceToHost, stream));
  EXPECT_CUDA_ERROR(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_CUDA_ERROR(cudaPeekAtLastError(), cudaErrorNotReady);
  EXPECT_CUDA_ERROR(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_CUDA(cudaGetLastError());
  EXPECT_EQ(*host, 7);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(*host, 1);
  EXPECT_CUDA(cudaFreeHost(host));
}

TEST(Streams, WorkStartsWithoutAnybodyWaitingForIt) {
  StreamOwner stream;
  Gate ran;
  enqueue(stream, [&] { ran.open(); });
  ran.wait();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
}

TEST(Streams, ABlockedKernelHoldsUpNoOtherStream) {
  constexpr int kStreams = 24;
  std::vector<std::unique_ptr<StreamOwner>> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(std::make_unique<StreamOwner>());
  std::atomic<int> arrived{0};
  Gate all;
  for (auto& stream : streams) {
    enqueue(*stream, [&] {
      if (++arrived == kStreams) all.open();
      vgpuAboutToBlock();
      all.wait();
    });
  }
  for (auto& stream : streams) ASSERT_CUDA(cudaStreamSynchronize(*stream));
  EXPECT_EQ(arrived, kStreams);
}

TEST(Streams, KernelsThatWaitForEachOtherNeedNoHint) {
  StreamOwner first;
  StreamOwner second;
  Gate gate;
  enqueue(first, [&] { gate.wait(); });
  enqueue(second, [&] { gate.open(); });
  ASSERT_CUDA(cudaStreamSynchronize(first));
  ASSERT_CUDA(cudaStreamSynchronize(second));
}

TEST(Streams, ManyThreadsUseTheirOwnStreams) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      ASSERT_CUDA(cudaSetDevice(t));
      StreamOwner stream;
      int count = 0;
      for (int i = 0; i < kRounds; ++i) {
        enqueue(stream, [&count] { ++count; });
        ASSERT_CUDA(cudaStreamSynchronize(stream));
        ASSERT_EQ(count, i + 1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Streams, OneStreamMayBeUsedBySeveralThreads) {
  StreamOwner stream;
  std::atomic<int> count{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        enqueue(stream, [&] { ++count; });
        if (i % 10 != 0) continue;
        ASSERT_CUDA(cudaStreamSynchronize(stream));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(count, 400);
}

TEST(Streams, DestroyedStreamFinishesItsWork) {
  Gate gate;
  Gate done;
  {
    StreamOwner stream;
    enqueue_gate(stream, gate);
    enqueue(stream, [&] { done.open(); });
  }
  gate.open();
  done.wait();
  ASSERT_CUDA(cudaDeviceSynchronize());
}

TEST(Streams, AHandleNamesAnotherStreamWhileTheOldOneStillHasWork) {
  Gate gate;
  Gate done;
  cudaStream_t handle = nullptr;
  unsigned long long old_id = 0;
  unsigned long long id = 0;
  ASSERT_CUDA(cudaStreamCreate(&handle));
  ASSERT_CUDA(cudaStreamGetId(handle, &old_id));
  enqueue_gate(handle, gate);
  enqueue(handle, [&] { done.open(); });
  ASSERT_CUDA(cudaStreamDestroy(handle));
  StreamOwner stream;
  EXPECT_EQ(stream.stream, handle);
  ASSERT_CUDA(cudaStreamGetId(stream, &id));
  EXPECT_NE(id, old_id);
  enqueue(stream, [] {});
  ASSERT_CUDA(cudaStreamSynchronize(stream));  // does not wait for the gate
  gate.open();
  done.wait();
}

TEST(Streams, HaveFlagsPriorityDeviceAndId) {
  ASSERT_CUDA(cudaSetDevice(3));
  int least = 1;
  int greatest = 1;
  ASSERT_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(least, 0);
  EXPECT_LT(greatest, least);
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 10));
  ASSERT_CUDA(cudaSetDevice(0));
  int priority = 1;
  unsigned flags = 0;
  int device = -1;
  unsigned long long id = 0;
  unsigned long long other_id = 0;
  EXPECT_CUDA(cudaStreamGetPriority(stream, &priority));
  EXPECT_CUDA(cudaStreamGetFlags(stream, &flags));
  EXPECT_CUDA(cudaStreamGetDevice(stream, &device));
  EXPECT_CUDA(cudaStreamGetId(stream, &id));
  EXPECT_CUDA(cudaStreamGetId(nullptr, &other_id));
  EXPECT_EQ(priority, greatest);
  EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
  EXPECT_EQ(device, 3);
  EXPECT_NE(id, other_id);
  EXPECT_CUDA(cudaStreamDestroy(stream));
  EXPECT_CUDA_ERROR(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA_ERROR(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA_ERROR(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA_ERROR(cudaStreamCreateWithFlags(&stream, 8), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaStreamCreate(nullptr), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(Streams, CallbacksGetStreamAndStatus) {
  StreamOwner stream;
  struct Seen {
    cudaStream_t stream = nullptr;
    cudaError_t status = cudaErrorUnknown;
  } seen;
  ASSERT_CUDA(cudaStreamAddCallback(
      stream,
      [](cudaStream_t s, cudaError_t status, void* p) {
        *static_cast<Seen*>(p) = {s, status};
      },
      &seen, 0));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(seen.stream, stream.stream);
  EXPECT_EQ(seen.status, cudaSuccess);
  EXPECT_CUDA_ERROR(cudaStreamAddCallback(stream, nullptr, nullptr, 0), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaLaunchHostFunc(stream, nullptr, nullptr), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(DefaultStream, WaitsForBlockingStreamsAndTheyForIt) {
  StreamOwner blocking(cudaStreamDefault);
  Gate gate;
  std::vector<int> order;
  enqueue_gate(blocking, gate);
  enqueue(blocking, [&] { order.push_back(1); });
  enqueue(nullptr, [&] { order.push_back(2); });
  enqueue(blocking, [&] { order.push_back(3); });
  EXPECT_CUDA_ERROR(cudaStreamQuery(nullptr), cudaErrorNotReady);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(blocking));
  EXPECT_THAT(order, testing::ElementsAre(1, 2, 3));
  EXPECT_CUDA(cudaStreamQuery(cudaStreamLegacy));
  cudaGetLastError();
}

TEST(DefaultStream, IsIndependentOfNonBlockingStreamsAndOtherDevices) {
  StreamOwner other(cudaStreamNonBlocking);
  Gate gate;
  enqueue_gate(other, gate);
  ASSERT_CUDA(cudaSetDevice(1));
  StreamOwner foreign(cudaStreamDefault);
  enqueue_gate(foreign, gate);
  ASSERT_CUDA(cudaSetDevice(0));
  int ran = 0;
  enqueue(nullptr, [&] { ran = 1; });
  ASSERT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(ran, 1);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(other));
  ASSERT_CUDA(cudaStreamSynchronize(foreign));
}

TEST(DefaultStream, SynchronizingWaitsForBlockingStreams) {
  StreamOwner blocking(cudaStreamDefault);
  int ran = 0;
  enqueue(blocking, [&] { ran = 1; });
  ASSERT_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  EXPECT_EQ(ran, 1);
}

TEST(DefaultStream, EachThreadHasOneOfItsOwn) {
  unsigned long long first = 0;
  unsigned long long second = 0;
  unsigned long long again = 0;
  ASSERT_CUDA(cudaStreamGetId(cudaStreamPerThread, &first));
  ASSERT_CUDA(cudaStreamGetId(cudaStreamPerThread, &again));
  std::thread([&] {
    ASSERT_CUDA(cudaStreamGetId(cudaStreamPerThread, &second));
    enqueue(cudaStreamPerThread, [] {});
    ASSERT_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
  }).join();
  EXPECT_EQ(first, again);
  EXPECT_NE(first, second);
}

TEST(Devices, SynchronizeWaitsForAllStreamsOfTheDevice) {
  StreamOwner first;
  StreamOwner second(cudaStreamDefault);
  std::atomic<int> ran{0};
  enqueue(first, [&] { ++ran; });
  enqueue(second, [&] { ++ran; });
  enqueue(nullptr, [&] { ++ran; });
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(ran, 3);
}

TEST(Kernels, AreReleasedOnceAfterTheyHaveRun) {
  struct State {
    int runs = 0;
    int releases = 0;
  } state;
  StreamOwner stream;
  const VgpuKernel kernel{[](void* p) { ++static_cast<State*>(p)->runs; }, &state,
                          [](void* p) { ++static_cast<State*>(p)->releases; }};
  ASSERT_CUDA(vgpuLaunchKernel(stream, &kernel));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(state.runs, 1);
  EXPECT_EQ(state.releases, 1);
  EXPECT_CUDA_ERROR(vgpuLaunchKernel(stream, nullptr), cudaErrorInvalidValue);
  cudaGetLastError();
}

}  // namespace
}  // namespace nitinol::vgpu::test
