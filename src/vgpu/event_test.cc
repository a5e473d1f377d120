// Events: what they wait for, how they order streams, the time between them.
#include <atomic>
#include <chrono>

#include "vgpu/test_support.h"

namespace nitinol::vgpu::test {
namespace {

TEST(Events, AreReachedWhenTheWorkBeforeThemIsDone) {
  StreamOwner stream;
  EventOwner event;
  EXPECT_CUDA(cudaEventQuery(event));  // never recorded
  EXPECT_CUDA(cudaEventSynchronize(event));
  Gate gate;
  enqueue_gate(stream, gate);
  ASSERT_CUDA(cudaEventRecord(event, stream));
  EXPECT_CUDA_ERROR(cudaEventQuery(event), cudaErrorNotReady);
  gate.open();
  ASSERT_CUDA(cudaEventSynchronize(event));
  EXPECT_CUDA(cudaEventQuery(event));
  cudaGetLastError();
}

TEST(Events, OrderStreams) {
  StreamOwner first;
  StreamOwner second;
  EventOwner event;
  Gate gate;
  std::vector<int> order;
  enqueue_gate(first, gate);
  enqueue(first, [&] { order.push_back(1); });
  ASSERT_CUDA(cudaEventRecord(event, first));
  ASSERT_CUDA(cudaStreamWaitEvent(second, event, 0));
  enqueue(second, [&] { order.push_back(2); });
  EXPECT_CUDA_ERROR(cudaStreamQuery(second), cudaErrorNotReady);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(second));
  EXPECT_THAT(order, testing::ElementsAre(1, 2));
  cudaGetLastError();
}

TEST(Events, ASynchronizingThreadRunsTheStreamsThatItsOwnWaitsFor) {
  constexpr int kStreams = 5;
  constexpr int kRounds = 50;
  std::vector<std::unique_ptr<StreamOwner>> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(std::make_unique<StreamOwner>());
  EventOwner event;
  std::vector<int> order;
  for (int i = 0; i < kStreams * kRounds; ++i) {
    const cudaStream_t stream = *streams[static_cast<size_t>(i % kStreams)];
    ASSERT_CUDA(cudaStreamWaitEvent(stream, event));
    enqueue(stream, [&order, i] { order.push_back(i); });
    ASSERT_CUDA(cudaEventRecord(event, stream));
  }
  ASSERT_CUDA(cudaEventSynchronize(event));
  ASSERT_EQ(order.size(), static_cast<size_t>(kStreams * kRounds));
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], static_cast<int>(i));
}

TEST(Events, ParkedStreamsGoOnWithoutAnybodyWaiting) {
  constexpr int kStreams = 6;
  std::vector<std::unique_ptr<StreamOwner>> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(std::make_unique<StreamOwner>());
  EventOwner event;
  Gate gate;
  Gate done;
  std::atomic<int> ran{0};
  enqueue_gate(*streams[0], gate);
  for (auto& stream : streams) {
    ASSERT_CUDA(cudaStreamWaitEvent(*stream, event));
    enqueue(*stream, [&] {
      if (++ran == kStreams) done.open();
    });
    ASSERT_CUDA(cudaEventRecord(event, *stream));
  }
  EXPECT_CUDA_ERROR(cudaEventQuery(event), cudaErrorNotReady);
  gate.open();
  done.wait();
  EXPECT_EQ(ran, kStreams);
  ASSERT_CUDA(cudaDeviceSynchronize());
  cudaGetLastError();
}

TEST(Events, AWaitRefersToTheRecordBeforeIt) {
  StreamOwner first;
  StreamOwner second;
  EventOwner event;
  Gate gate;
  ASSERT_CUDA(cudaEventRecord(event, first));
  ASSERT_CUDA(cudaStreamWaitEvent(second, event));
  enqueue_gate(first, gate);
  ASSERT_CUDA(cudaEventRecord(event, first));
  ASSERT_CUDA(cudaStreamSynchronize(second));
  gate.open();
  ASSERT_CUDA(cudaEventSynchronize(event));
}

TEST(Events, OfABlockingStreamComeAfterTheLegacyStreamsWork) {
  for (const unsigned flags : {cudaEventDefault, cudaEventDisableTiming}) {
    Gate gate;
    StreamOwner stream(cudaStreamDefault);
    EventOwner event(flags);
    enqueue_gate(cudaStreamLegacy, gate);
    ASSERT_CUDA(cudaEventRecord(event, stream));
    EXPECT_CUDA_ERROR(cudaEventQuery(event), cudaErrorNotReady);
    gate.open();
    ASSERT_CUDA(cudaEventSynchronize(event));
    EXPECT_CUDA(cudaEventQuery(event));
    ASSERT_CUDA(cudaDeviceSynchronize());
  }
}

TEST(Events, MeasureTime) {
  StreamOwner stream;
  EventOwner start(cudaEventDefault);
  EventOwner end(cudaEventDefault);
  EventOwner untimed;
  float ms = -1;
  EXPECT_CUDA_ERROR(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);
  Gate gate;
  ASSERT_CUDA(cudaEventRecord(start, stream));
  enqueue_gate(stream, gate);
  ASSERT_CUDA(cudaEventRecord(end, stream));
  ASSERT_CUDA(cudaEventRecord(untimed, stream));
  EXPECT_CUDA_ERROR(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  ASSERT_CUDA(cudaEventSynchronize(start));
  const auto before = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - before < std::chrono::milliseconds(2)) std::this_thread::yield();
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  ASSERT_CUDA(cudaEventElapsedTime(&ms, start, end));
  EXPECT_GE(ms, 2.0f);
  EXPECT_CUDA_ERROR(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST(Events, MayBeDestroyedWhileRecording) {
  StreamOwner stream;
  Gate gate;
  enqueue_gate(stream, gate);
  {
    EventOwner event(cudaEventDefault);
    ASSERT_CUDA(cudaEventRecord(event, stream));
  }
  EventOwner reused(cudaEventDefault);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaEventQuery(reused));
}

TEST(Events, RefuseWhatIsWrong) {
  EventOwner event;
  EXPECT_CUDA_ERROR(cudaEventQuery(nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_CUDA_ERROR(cudaEventRecordWithFlags(event, nullptr, cudaEventRecordExternal), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaStreamWaitEvent(nullptr, event, cudaEventWaitExternal), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaStreamWaitEvent(nullptr, event, 2), cudaErrorInvalidValue);
  cudaEvent_t other = nullptr;
  EXPECT_CUDA_ERROR(cudaEventCreateWithFlags(&other, 64), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaEventCreateWithFlags(&other, cudaEventInterprocess), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaEventCreateWithFlags(&other, cudaEventInterprocess | cudaEventDisableTiming),
                    cudaErrorNotSupported);
  ASSERT_CUDA(cudaSetDevice(1));
  EXPECT_CUDA_ERROR(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
  ASSERT_CUDA(cudaSetDevice(0));
  cudaIpcEventHandle_t handle;
  EXPECT_CUDA_ERROR(cudaIpcGetEventHandle(&handle, event), cudaErrorNotSupported);
  cudaGetLastError();
}

}  // namespace
}  // namespace nitinol::vgpu::test
