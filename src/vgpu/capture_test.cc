// Stream capture.
#include <atomic>

#include "vgpu/graph_test_support.h"

namespace nitinol::vgpu::test {
namespace {

TEST(Capture, RecordsInsteadOfRunning) {
  StreamOwner stream;
  DeviceArray<int> array(4);
  DeviceArray<int> copy(4);
  array.set({0, 0, 0, 0});
  copy.set({9, 9, 9, 9});
  int runs = 0;
  begin(stream);
  EXPECT_EQ(status_of(stream), cudaStreamCaptureStatusActive);
  ASSERT_CUDA(cudaMemsetAsync(array.get(), 1, array.bytes(), stream));
  ASSERT_CUDA(cudaMemcpyAsync(copy.get(), array.get(), array.bytes(), cudaMemcpyDeviceToDevice, stream));
  enqueue(stream, [&] { ++runs; });
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream, [](void* p) { ++*static_cast<int*>(p); }, &runs));
  GraphOwner owner;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &owner.graph));
  EXPECT_EQ(status_of(stream), cudaStreamCaptureStatusNone);
  EXPECT_EQ(runs, 0);
  EXPECT_THAT(copy.values(), testing::Each(9));
  ASSERT_EQ(node_count(owner.graph), 4u);
  std::vector<cudaGraphNode_t> nodes(4);
  size_t count = 4;
  ASSERT_CUDA(cudaGraphGetNodes(owner.graph, nodes.data(), &count));
  std::vector<cudaGraphNodeType> types(4);
  for (size_t i = 0; i < 4; ++i) ASSERT_CUDA(cudaGraphNodeGetType(nodes[i], &types[i]));
  EXPECT_THAT(types, testing::ElementsAre(cudaGraphNodeTypeMemset, cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeKernel,
                                          cudaGraphNodeTypeHost));
  InstanceOwner instance(owner.graph);
  StreamOwner other;
  for (int i = 1; i <= 3; ++i) {
    const cudaStream_t target = i % 2 == 0 ? stream.stream : other.stream;
    ASSERT_CUDA(cudaGraphLaunch(instance.exec, target));
    ASSERT_CUDA(cudaStreamSynchronize(target));
    EXPECT_EQ(runs, 2 * i);
  }
  EXPECT_THAT(copy.values(), testing::Each(0x01010101));
}

TEST(Capture, LaunchesOfOneInstanceDoNotOverlap) {
  StreamOwner first;
  StreamOwner second;
  std::vector<int> order;
  int number = 0;
  begin(first);
  enqueue(first, [&] { order.push_back(++number); });
  enqueue(first, [&] { order.push_back(-number); });
  GraphOwner owner;
  ASSERT_CUDA(cudaStreamEndCapture(first, &owner.graph));
  InstanceOwner instance(owner.graph);
  Gate gate;
  enqueue_gate(first, gate);
  ASSERT_CUDA(cudaGraphLaunch(instance.exec, first));
  ASSERT_CUDA(cudaGraphLaunch(instance.exec, second));
  EXPECT_CUDA_ERROR(cudaStreamQuery(second), cudaErrorNotReady);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(second));
  EXPECT_THAT(order, testing::ElementsAre(1, -1, 2, -2));
  cudaGetLastError();
}

TEST(Capture, ForksAndJoinsThroughEvents) {
  StreamOwner origin;
  ASSERT_CUDA(cudaSetDevice(1));
  StreamOwner other;
  ASSERT_CUDA(cudaSetDevice(0));
  EventOwner fork;
  EventOwner join;
  Gate gate;
  std::atomic<int> side{0};
  std::vector<int> seen;
  begin(origin, cudaStreamCaptureModeGlobal);
  enqueue(origin, [&] { side = 0; });
  ASSERT_CUDA(cudaEventRecord(fork, origin));
  ASSERT_CUDA(cudaStreamWaitEvent(other, fork));
  EXPECT_EQ(status_of(other), cudaStreamCaptureStatusActive);
  enqueue(other, [&] { gate.wait(), ++side; });
  enqueue(origin, [&] { gate.open(); });  // deadlocks unless both branches run at the same time
  ASSERT_CUDA(cudaSetDevice(1));
  ASSERT_CUDA(cudaEventDestroy(std::exchange(join.event, nullptr)));
  ASSERT_CUDA(cudaEventCreateWithFlags(&join.event, cudaEventDisableTiming));
  ASSERT_CUDA(cudaSetDevice(0));
  ASSERT_CUDA(cudaEventRecord(join, other));
  ASSERT_CUDA(cudaStreamWaitEvent(origin, join));
  enqueue(origin, [&] { seen.push_back(side); });
  GraphOwner owner;
  ASSERT_CUDA(cudaStreamEndCapture(origin, &owner.graph));
  EXPECT_EQ(status_of(other), cudaStreamCaptureStatusNone);
  EXPECT_EQ(node_count(owner.graph), 4u);
  InstanceOwner instance(owner.graph);
  for (int i = 0; i < 3; ++i) {
    ASSERT_CUDA(cudaGraphLaunch(instance.exec, origin));
    ASSERT_CUDA(cudaStreamSynchronize(origin));
  }
  EXPECT_THAT(seen, testing::ElementsAre(1, 1, 1));
}

TEST(Capture, ManyBranchesRunTogether) {
  constexpr size_t kBranches = 20;
  StreamOwner origin;
  std::vector<std::unique_ptr<StreamOwner>> streams;
  std::vector<std::unique_ptr<EventOwner>> events;
  std::atomic<int> arrived{0};
  std::atomic<int> rounds{0};
  EventOwner fork;
  begin(origin);
  enqueue(origin, [&] { arrived = 0; });
  ASSERT_CUDA(cudaEventRecord(fork, origin));
  for (size_t i = 0; i < kBranches; ++i) {
    streams.push_back(std::make_unique<StreamOwner>());
    events.push_back(std::make_unique<EventOwner>());
    ASSERT_CUDA(cudaStreamWaitEvent(*streams[i], fork));
    enqueue(*streams[i], [&] {
      ++arrived;
      vgpuAboutToBlock();
      while (arrived < static_cast<int>(kBranches)) std::this_thread::yield();
    });
    ASSERT_CUDA(cudaEventRecord(*events[i], *streams[i]));
    ASSERT_CUDA(cudaStreamWaitEvent(origin, *events[i]));
  }
  enqueue(origin, [&] { ++rounds; });
  GraphOwner owner;
  ASSERT_CUDA(cudaStreamEndCapture(origin, &owner.graph));
  InstanceOwner instance(owner.graph);
  for (int i = 0; i < 5; ++i) ASSERT_CUDA(cudaGraphLaunch(instance.exec, origin));
  ASSERT_CUDA(cudaStreamSynchronize(origin));
  EXPECT_EQ(rounds, 5);
}

TEST(Capture, TellsAboutItself) {
  StreamOwner stream;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  EXPECT_CUDA(cudaStreamGetCaptureInfo(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  begin(stream);
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* dependencies = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 99;
  ASSERT_CUDA(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &dependencies, &edges, &count));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_NE(id, 0u);
  EXPECT_NE(graph, nullptr);
  EXPECT_EQ(count, 0u);
  enqueue(stream, [] {});
  ASSERT_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &dependencies, &edges, &count));
  ASSERT_EQ(count, 1u);
  const cudaGraphNode_t kernel = dependencies[0];
  cudaGraphNode_t added = nullptr;
  ASSERT_CUDA(cudaGraphAddEmptyNode(&added, graph, &kernel, 1));
  ASSERT_CUDA(cudaStreamUpdateCaptureDependencies(stream, &added, nullptr, 1, cudaStreamAddCaptureDependencies));
  ASSERT_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &dependencies, nullptr, &count));
  EXPECT_EQ(count, 2u);
  ASSERT_CUDA(cudaStreamUpdateCaptureDependencies(stream, &added, nullptr, 1, cudaStreamSetCaptureDependencies));
  enqueue(stream, [] {});
  ASSERT_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &dependencies, nullptr, &count));
  ASSERT_EQ(count, 1u);
  cudaGraphNode_t before = nullptr;
  size_t before_count = 1;
  ASSERT_CUDA(cudaGraphNodeGetDependencies(dependencies[0], &before, nullptr, &before_count));
  EXPECT_EQ(before, added);
  GraphOwner owner;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &owner.graph));
  EXPECT_EQ(owner.graph, graph);
}

TEST(Capture, SynchronizingTheStreamSpoilsIt) {
  StreamOwner stream;
  begin(stream);
  EXPECT_CUDA_ERROR(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_CUDA_ERROR(cudaMemsetAsync(nullptr, 0, 1, stream), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaLaunchHostFunc(
                        stream, [](void*) {}, nullptr),
                    cudaErrorStreamCaptureInvalidated);
  end_spoilt(stream);
  begin(stream);
  EXPECT_CUDA_ERROR(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
  end_spoilt(stream);
  begin(stream);
  unsigned long long id = 0;
  EXPECT_CUDA_ERROR(cudaStreamGetId(stream, &id), cudaErrorStreamCaptureUnsupported);
  end_spoilt(stream);
}

TEST(Capture, IsSpoiltByWhoeverWaitsForItsDeviceInWhateverMode) {
  const StreamOwner stream;
  for (const auto mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    begin(stream, mode);
    EXPECT_CUDA_ERROR(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    end_spoilt(stream);
    begin(stream, mode);
    std::thread([] {
      auto relaxed = cudaStreamCaptureModeRelaxed;
      EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&relaxed));
      EXPECT_CUDA_ERROR(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    }).join();
    end_spoilt(stream);
    begin(stream, mode);
    std::thread([] {
      EXPECT_CUDA(cudaSetDevice(1));
      auto relaxed = cudaStreamCaptureModeRelaxed;
      EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&relaxed));
      EXPECT_CUDA(cudaDeviceSynchronize());
    }).join();
    GraphOwner owner;
    EXPECT_CUDA(cudaStreamEndCapture(stream, &owner.graph));
  }
}

TEST(Capture, EndsWithItsStream) {
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  begin(stream);
  EXPECT_CUDA(cudaStreamDestroy(stream));
  void* pointer = nullptr;
  EXPECT_CUDA(cudaMalloc(&pointer, 100));
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_CUDA(cudaFree(pointer));
}

TEST(Capture, UnsafeCallsSpoilItAsTheModeSays) {
  StreamOwner stream;
  void* pointer = nullptr;
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal}) {
    begin(stream, mode);
    EXPECT_CUDA_ERROR(cudaMalloc(&pointer, 10), cudaErrorStreamCaptureUnsupported);
    end_spoilt(stream);
    begin(stream, mode);
    EXPECT_CUDA_ERROR(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    end_spoilt(stream);
  }
  auto elsewhere = [&] {
    cudaError_t result = cudaSuccess;
    std::thread([&] {
      result = cudaMalloc(&pointer, 10);
      if (result != cudaSuccess) return;
      EXPECT_CUDA(cudaFree(pointer));
    }).join();
    return result;
  };
  begin(stream, cudaStreamCaptureModeGlobal);
  EXPECT_CUDA_ERROR(elsewhere(), cudaErrorStreamCaptureUnsupported);
  end_spoilt(stream);
  begin(stream, cudaStreamCaptureModeThreadLocal);
  EXPECT_CUDA(elsewhere());
  EXPECT_EQ(status_of(stream), cudaStreamCaptureStatusActive);
  GraphOwner owner;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &owner.graph));
  cudaGetLastError();
}

TEST(Capture, RelaxedThreadsMayMakeUnsafeCalls) {
  StreamOwner stream;
  begin(stream, cudaStreamCaptureModeGlobal);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ASSERT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  void* pointer = nullptr;
  EXPECT_CUDA(cudaMalloc(&pointer, 10));
  EXPECT_CUDA(cudaFree(pointer));
  ASSERT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, cudaStreamCaptureModeRelaxed);
  GraphOwner owner;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &owner.graph));
  begin(stream, cudaStreamCaptureModeRelaxed);
  EXPECT_CUDA(cudaMalloc(&pointer, 10));
  EXPECT_CUDA(cudaFree(pointer));
  GraphOwner relaxed;
  std::thread([&] { ASSERT_CUDA(cudaStreamEndCapture(stream, &relaxed.graph)); }).join();
}

TEST(Capture, RefusesToEndInTheWrongPlace) {
  StreamOwner stream;
  StreamOwner other;
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA_ERROR(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
  EXPECT_CUDA_ERROR(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  begin(stream);
  EXPECT_CUDA_ERROR(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  std::thread([&] {
    EXPECT_CUDA_ERROR(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureWrongThread);
  }).join();
  EventOwner event;
  ASSERT_CUDA(cudaEventRecord(event, stream));
  ASSERT_CUDA(cudaStreamWaitEvent(other, event));
  EXPECT_CUDA_ERROR(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
  end_spoilt(stream);
  EXPECT_EQ(status_of(other), cudaStreamCaptureStatusNone);
}

TEST(Capture, RefusesUnjoinedWork) {
  StreamOwner stream;
  StreamOwner other;
  EventOwner event;
  begin(stream);
  ASSERT_CUDA(cudaEventRecord(event, stream));
  ASSERT_CUDA(cudaStreamWaitEvent(other, event));
  enqueue(other, [] {});
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA_ERROR(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(status_of(other), cudaStreamCaptureStatusNone);
  cudaGetLastError();
}

TEST(Capture, RefusesDependenciesThatItCannotHold) {
  StreamOwner stream;
  StreamOwner other;
  EventOwner outside;
  EventOwner inside;
  Gate gate;
  enqueue_gate(other, gate);
  ASSERT_CUDA(cudaEventRecord(outside, other));
  begin(stream);
  EXPECT_CUDA_ERROR(cudaStreamWaitEvent(stream, outside), cudaErrorStreamCaptureIsolation);
  end_spoilt(stream);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(other));

  begin(stream);
  begin(other);
  ASSERT_CUDA(cudaEventRecord(inside, stream));
  EXPECT_CUDA_ERROR(cudaStreamWaitEvent(other, inside), cudaErrorStreamCaptureMerge);
  end_spoilt(stream);
  end_spoilt(other);

  begin(stream);
  ASSERT_CUDA(cudaEventRecord(inside, stream));
  EXPECT_CUDA_ERROR(cudaEventQuery(inside), cudaErrorCapturedEvent);
  end_spoilt(stream);
  EXPECT_CUDA_ERROR(cudaStreamWaitEvent(other, inside), cudaErrorCapturedEvent);
  ASSERT_CUDA(cudaEventRecord(inside, other));
  EXPECT_CUDA(cudaEventSynchronize(inside));
  cudaGetLastError();
}

TEST(Capture, OfABlockingStreamForbidsTheLegacyStream) {
  StreamOwner stream(cudaStreamDefault);
  DeviceArray<int> array(1);
  begin(stream, cudaStreamCaptureModeRelaxed);
  EXPECT_CUDA_ERROR(cudaMemset(array.get(), 0, 4), cudaErrorStreamCaptureImplicit);
  end_spoilt(stream);
  EXPECT_CUDA(cudaMemset(array.get(), 0, 4));
}

// Streams of the device do, and its default stream, whatever has become of captures.
void expect_streams_to_run() {
  StreamOwner stream(cudaStreamDefault);
  EXPECT_EQ(status_of(stream), cudaStreamCaptureStatusNone);
  int runs = 0;
  enqueue(stream, [&] { ++runs; });
  enqueue(nullptr, [&] { ++runs; });
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(runs, 2);
}

TEST(Capture, IsInvalidOnceAThreadHasEndedWhoseOwnStreamWasInIt) {
  StreamOwner origin;
  EventOwner fork;
  begin(origin);
  ASSERT_CUDA(cudaEventRecord(fork, origin));
  std::thread([&] {
    ASSERT_CUDA(cudaStreamWaitEvent(cudaStreamPerThread, fork));
    EXPECT_EQ(status_of(cudaStreamPerThread), cudaStreamCaptureStatusActive);
    enqueue(cudaStreamPerThread, [] {});
  }).join();
  std::thread(expect_streams_to_run).join();
  end_spoilt(origin);
  expect_streams_to_run();
}

TEST(Capture, EndsWithTheThreadInWhoseOwnStreamItBegan) {
  StreamOwner member;
  const auto released = std::make_shared<int>();
  std::thread([&] {
    EventOwner fork;
    begin(cudaStreamPerThread, cudaStreamCaptureModeGlobal);
    enqueue(cudaStreamPerThread, [released] {});
    ASSERT_CUDA(cudaEventRecord(fork, cudaStreamPerThread));
    ASSERT_CUDA(cudaStreamWaitEvent(member, fork));
    EXPECT_EQ(status_of(member), cudaStreamCaptureStatusActive);
  }).join();
  EXPECT_EQ(status_of(member), cudaStreamCaptureStatusNone);
  EXPECT_EQ(released.use_count(), 1);
  expect_streams_to_run();
}

TEST(Capture, EndsWithItsStreamWhenTheDeviceIsReset) {
  ASSERT_CUDA(cudaSetDevice(7));
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  begin(stream);
  std::thread([] {
    ASSERT_CUDA(cudaSetDevice(7));
    EXPECT_CUDA(cudaDeviceReset());
  }).join();
  expect_streams_to_run();
  ASSERT_CUDA(cudaSetDevice(0));
}

TEST(Capture, ExternalEventsWorkAtLaunch) {
  StreamOwner stream;
  StreamOwner other;
  EventOwner start;
  EventOwner done;
  std::vector<int> order;
  begin(stream);
  ASSERT_CUDA(cudaStreamWaitEvent(stream, start, cudaEventWaitExternal));
  enqueue(stream, [&] { order.push_back(2); });
  ASSERT_CUDA(cudaEventRecordWithFlags(done, stream, cudaEventRecordExternal));
  GraphOwner owner;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &owner.graph));
  EXPECT_EQ(node_count(owner.graph), 3u);
  InstanceOwner instance(owner.graph);
  for (int round = 0; round < 2; ++round) {
    order.clear();
    Gate gate;
    enqueue_gate(other, gate);
    enqueue(other, [&] { order.push_back(1); });
    ASSERT_CUDA(cudaEventRecord(start, other));
    ASSERT_CUDA(cudaGraphLaunch(instance.exec, stream));
    EXPECT_CUDA_ERROR(cudaEventQuery(done), cudaErrorNotReady);
    ASSERT_CUDA(cudaStreamWaitEvent(other, done));
    enqueue(other, [&] { order.push_back(3); });
    gate.open();
    ASSERT_CUDA(cudaStreamSynchronize(other));
    EXPECT_THAT(order, testing::ElementsAre(1, 2, 3));
  }
  cudaGetLastError();
}

TEST(Capture, AnExternalWaitRefersToTheRecordBeforeTheLaunch) {
  StreamOwner stream;
  EventOwner event;
  int runs = 0;
  begin(stream);
  ASSERT_CUDA(cudaStreamWaitEvent(stream, event, cudaEventWaitExternal));
  enqueue(stream, [&] { ++runs; });
  ASSERT_CUDA(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
  GraphOwner owner;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &owner.graph));
  InstanceOwner instance(owner.graph);
  StreamOwner other;
  for (int i = 0; i < 10; ++i) ASSERT_CUDA(cudaGraphLaunch(instance.exec, i % 2 == 0 ? stream.stream : other.stream));
  ASSERT_CUDA(cudaEventSynchronize(event));
  EXPECT_EQ(runs, 10);
}

}  // namespace
}  // namespace nitinol::vgpu::test
