// Graphs: what they keep, how they are built, launched and updated.
#include <atomic>
#include <optional>

#include "vgpu/graph_test_support.h"

namespace nitinol::vgpu::test {
namespace {

struct Counts {
  std::atomic<int> runs{0};
  std::atomic<int> releases{0};
};

VgpuKernel counting_kernel(Counts& counts) {
  return {[](void* p) { ++static_cast<Counts*>(p)->runs; }, &counts,
          [](void* p) { ++static_cast<Counts*>(p)->releases; }};
}

TEST(Graphs, KeepKernelsUntilNobodyCanRunThem) {
  StreamOwner stream;
  Counts counts;
  const VgpuKernel kernel = counting_kernel(counts);
  begin(stream);
  ASSERT_CUDA(vgpuLaunchKernel(stream, &kernel));
  cudaGraph_t graph = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  Gate gate;
  enqueue_gate(stream, gate);
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaGraphLaunch(exec, stream));
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_EQ(counts.releases, 0);
  gate.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(counts.runs, 2);
  EXPECT_EQ(counts.releases, 1);
}

TEST(Graphs, ARefusedKernelStaysTheCallers) {
  StreamOwner stream;
  Counts counts;
  const VgpuKernel kernel = counting_kernel(counts);
  begin(stream);
  EXPECT_CUDA_ERROR(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_CUDA_ERROR(vgpuLaunchKernel(stream, &kernel), cudaErrorStreamCaptureInvalidated);
  end_spoilt(stream);
  EXPECT_EQ(counts.releases, 0);
  begin(stream);
  ASSERT_CUDA(vgpuLaunchKernel(stream, &kernel));
  EXPECT_CUDA_ERROR(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
  end_spoilt(stream);
  EXPECT_EQ(counts.releases, 1);
  EXPECT_EQ(counts.runs, 0);
}

TEST(Graphs, HoldUserObjects) {
  StreamOwner stream;
  int destroyed = 0;
  cudaUserObject_t object = nullptr;
  ASSERT_CUDA(cudaUserObjectCreate(
      &object, &destroyed, [](void* p) { ++*static_cast<int*>(p); }, 1, cudaUserObjectNoDestructorSync));
  GraphOwner owner;
  ASSERT_CUDA(cudaGraphCreate(&owner.graph, 0));
  ASSERT_CUDA(cudaGraphRetainUserObject(owner.graph, object, 1, cudaGraphUserObjectMove));
  ASSERT_CUDA(cudaUserObjectRetain(object, 2));
  ASSERT_CUDA(cudaUserObjectRelease(object, 2));
  {
    InstanceOwner instance(owner.graph);
    ASSERT_CUDA(cudaGraphDestroy(std::exchange(owner.graph, nullptr)));
    EXPECT_EQ(destroyed, 0);
    ASSERT_CUDA(cudaGraphLaunch(instance.exec, stream));
  }
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(destroyed, 1);
  EXPECT_CUDA_ERROR(cudaUserObjectCreate(&object, nullptr, nullptr, 1, cudaUserObjectNoDestructorSync),
                    cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(Graphs, UserObjectsCanBeTakenFromThem) {
  int destroyed = 0;
  cudaUserObject_t object = nullptr;
  ASSERT_CUDA(cudaUserObjectCreate(
      &object, &destroyed, [](void* p) { ++*static_cast<int*>(p); }, 1, cudaUserObjectNoDestructorSync));
  GraphOwner owner;
  ASSERT_CUDA(cudaGraphCreate(&owner.graph, 0));
  ASSERT_CUDA(cudaGraphRetainUserObject(owner.graph, object));
  ASSERT_CUDA(cudaUserObjectRelease(object));
  EXPECT_CUDA_ERROR(cudaGraphReleaseUserObject(owner.graph, object, 2), cudaErrorInvalidValue);
  EXPECT_EQ(destroyed, 0);
  ASSERT_CUDA(cudaGraphReleaseUserObject(owner.graph, object));
  EXPECT_EQ(destroyed, 1);
  cudaGetLastError();
}

TEST(Graphs, AreBuiltByHand) {
  StreamOwner stream;
  DeviceArray<int> array(4);
  DeviceArray<int> copy(4);
  GraphOwner owner;
  ASSERT_CUDA(cudaGraphCreate(&owner.graph, 0));
  cudaGraphNode_t fill = nullptr;
  cudaGraphNode_t copying = nullptr;
  cudaGraphNode_t host = nullptr;
  cudaGraphNode_t empty = nullptr;
  int runs = 0;
  const cudaHostNodeParams host_params{[](void* p) { ++*static_cast<int*>(p); }, &runs};
  const cudaMemsetParams fill_params{array.get(), 0, 0x01020304, 4, 4, 1};
  ASSERT_CUDA(cudaGraphAddMemcpyNode1D(&copying, owner.graph, nullptr, 0, copy.get(), array.get(), array.bytes(),
                                       cudaMemcpyDeviceToDevice));
  ASSERT_CUDA(cudaGraphAddMemsetNode(&fill, owner.graph, nullptr, 0, &fill_params));
  ASSERT_CUDA(cudaGraphAddDependencies(owner.graph, &fill, &copying, nullptr, 1));
  ASSERT_CUDA(cudaGraphAddHostNode(&host, owner.graph, &copying, 1, &host_params));
  ASSERT_CUDA(cudaGraphAddEmptyNode(&empty, owner.graph, &host, 1));
  InstanceOwner instance(owner.graph);
  ASSERT_CUDA(cudaGraphUpload(instance.exec, stream));
  ASSERT_CUDA(cudaGraphLaunch(instance.exec, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_THAT(copy.values(), testing::Each(0x01020304));
  EXPECT_EQ(runs, 1);
  ASSERT_CUDA(cudaGraphAddDependencies(owner.graph, &empty, &fill, nullptr, 1));
  cudaGraphExec_t circle = nullptr;
  EXPECT_CUDA_ERROR(cudaGraphInstantiateWithFlags(&circle, owner.graph, 0), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(Graphs, TakeNoDependenciesButTheirOwnNodes) {
  StreamOwner stream;
  GraphOwner owner;
  GraphOwner other;
  ASSERT_CUDA(cudaGraphCreate(&owner.graph, 0));
  ASSERT_CUDA(cudaGraphCreate(&other.graph, 0));
  cudaGraphNode_t own = nullptr;
  cudaGraphNode_t foreign = nullptr;
  cudaGraphNode_t added = nullptr;
  ASSERT_CUDA(cudaGraphAddEmptyNode(&own, owner.graph, nullptr, 0));
  ASSERT_CUDA(cudaGraphAddEmptyNode(&foreign, other.graph, nullptr, 0));
  for (const cudaGraphNode_t wrong : {cudaGraphNode_t{nullptr}, foreign}) {
    EXPECT_CUDA_ERROR(cudaGraphAddEmptyNode(&added, owner.graph, &wrong, 1), cudaErrorInvalidValue);
    EXPECT_CUDA_ERROR(cudaGraphAddDependencies(owner.graph, &wrong, &own, nullptr, 1), cudaErrorInvalidValue);
    EXPECT_CUDA_ERROR(cudaGraphAddDependencies(owner.graph, &own, &wrong, nullptr, 1), cudaErrorInvalidValue);
    EXPECT_CUDA_ERROR(
        cudaStreamBeginCaptureToGraph(stream, owner.graph, &wrong, nullptr, 1, cudaStreamCaptureModeRelaxed),
        cudaErrorInvalidValue);
    EXPECT_EQ(status_of(stream), cudaStreamCaptureStatusNone);
    ASSERT_CUDA(cudaStreamBeginCaptureToGraph(stream, owner.graph, &own, nullptr, 1, cudaStreamCaptureModeRelaxed));
    cudaGraphNode_t dependency = wrong;
    EXPECT_CUDA_ERROR(
        cudaStreamUpdateCaptureDependencies(stream, &dependency, nullptr, 1, cudaStreamAddCaptureDependencies),
        cudaErrorInvalidValue);
    ASSERT_CUDA(cudaStreamEndCapture(stream, &owner.graph));
  }
  EXPECT_EQ(node_count(owner.graph), 1u);
  EXPECT_EQ(node_count(other.graph), 1u);
  const InstanceOwner instance(owner.graph);
  cudaGetLastError();
}

TEST(Graphs, AreNotLaunchedInACapture) {
  StreamOwner stream;
  int runs = 0;
  begin(stream);
  enqueue(stream, [&] { ++runs; });
  GraphOwner inner;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &inner.graph));
  InstanceOwner instance(inner.graph);
  begin(stream);
  EXPECT_CUDA_ERROR(cudaGraphLaunch(instance.exec, stream), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t none = nullptr;
  EXPECT_CUDA_ERROR(cudaStreamEndCapture(stream, &none), cudaErrorStreamCaptureInvalidated);
  ASSERT_CUDA(cudaGraphLaunch(instance.exec, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(runs, 1);
}

TEST(Graphs, CaptureMayGoOnInAnExistingGraph) {
  StreamOwner stream;
  int runs = 0;
  GraphOwner owner;
  ASSERT_CUDA(cudaGraphCreate(&owner.graph, 0));
  cudaGraphNode_t first = nullptr;
  ASSERT_CUDA(cudaGraphAddEmptyNode(&first, owner.graph, nullptr, 0));
  ASSERT_CUDA(cudaStreamBeginCaptureToGraph(stream, owner.graph, &first, nullptr, 1, cudaStreamCaptureModeRelaxed));
  enqueue(stream, [&] { ++runs; });
  cudaGraph_t same = nullptr;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &same));
  EXPECT_EQ(same, owner.graph);
  EXPECT_EQ(node_count(owner.graph), 2u);
  InstanceOwner instance(owner.graph);
  ASSERT_CUDA(cudaGraphLaunch(instance.exec, nullptr));
  ASSERT_CUDA(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(runs, 1);
}

TEST(Graphs, InstancesTakeOverWhatAGraphOfTheSameFormDoes) {
  StreamOwner stream;
  int runs = 0;
  auto capture = [&](int step, int times, cudaGraph_t* graph) {
    begin(stream);
    for (int i = 0; i < times; ++i) enqueue(stream, [&runs, step] { runs += step; });
    ASSERT_CUDA(cudaStreamEndCapture(stream, graph));
  };
  GraphOwner first;
  GraphOwner second;
  GraphOwner longer;
  capture(1, 1, &first.graph);
  capture(10, 1, &second.graph);
  capture(100, 2, &longer.graph);
  InstanceOwner instance(first.graph);
  cudaGraphExecUpdateResultInfo info;
  ASSERT_CUDA(cudaGraphExecUpdate(instance.exec, second.graph, &info));
  EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
  EXPECT_CUDA_ERROR(cudaGraphExecUpdate(instance.exec, longer.graph, &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
  ASSERT_CUDA(cudaGraphLaunch(instance.exec, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(runs, 10);
  cudaGetLastError();
}

TEST(Graphs, OwnTheMemoryThatIsAllocatedInACapture) {
  StreamOwner stream;
  int* pointer = nullptr;
  int* result = nullptr;
  ASSERT_CUDA(cudaMallocHost(&result, sizeof *result));
  *result = 0;
  {
    begin(stream);
    ASSERT_CUDA(cudaMallocAsync(&pointer, sizeof *pointer, stream));
    ASSERT_CUDA(cudaMemsetAsync(pointer, 1, sizeof *pointer, stream));
    ASSERT_CUDA(cudaMemcpyAsync(result, pointer, sizeof *pointer, cudaMemcpyDeviceToHost, stream));
    ASSERT_CUDA(cudaFreeAsync(pointer, stream));
    GraphOwner owner;
    ASSERT_CUDA(cudaStreamEndCapture(stream, &owner.graph));
    InstanceOwner instance(owner.graph);
    ASSERT_CUDA(cudaGraphLaunch(instance.exec, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(*result, 0x01010101);
  }
  EXPECT_CUDA_ERROR(cudaFree(pointer), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaFreeHost(result));
  cudaGetLastError();
}

constexpr size_t kInts = 100;

// A graph that allocates memory and fills it with ones.
void capture_allocation(cudaStream_t stream, int** pointer, cudaGraph_t* graph) {
  begin(stream, cudaStreamCaptureModeRelaxed);
  ASSERT_CUDA(cudaMallocAsync(pointer, kInts * sizeof(int), stream));
  ASSERT_CUDA(cudaMemsetAsync(*pointer, 1, kInts * sizeof(int), stream));
  ASSERT_CUDA(cudaStreamEndCapture(stream, graph));
}

TEST(Graphs, KeepTheirMemoryForThemselvesWhenTheProgramFreesIt) {
  const auto free_now = [](int* pointer, cudaStream_t) { return cudaFree(pointer); };
  const auto free_in_stream = [](int* pointer, cudaStream_t stream) { return cudaFreeAsync(pointer, stream); };
  for (cudaError_t (*const free_it)(int*, cudaStream_t) : {+free_now, +free_in_stream}) {
    StreamOwner stream;
    int* pointer = nullptr;
    GraphOwner owner;
    capture_allocation(stream, &pointer, &owner.graph);
    EXPECT_CUDA_ERROR(cudaFree(pointer), cudaErrorInvalidValue);  // before any launch
    std::optional<InstanceOwner> instance(owner.graph);
    ASSERT_CUDA(cudaGraphLaunch(instance->exec, stream));
    ASSERT_CUDA(free_it(pointer, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_CUDA_ERROR(cudaFree(pointer), cudaErrorInvalidValue);
    DeviceArray<int> other(kInts);
    const std::vector<int> twos(kInts, 2);
    other.set(twos);
    ASSERT_CUDA(cudaGraphLaunch(instance->exec, stream));
    ASSERT_CUDA(free_it(pointer, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(other.values(), twos);
    instance.reset();
    ASSERT_CUDA(cudaGraphDestroy(std::exchange(owner.graph, nullptr)));
    EXPECT_EQ(other.values(), twos);  // and is freed below
  }
  cudaGetLastError();
}

TEST(Graphs, LeaveMemoryThatIsAllocatedToTheProgram) {
  StreamOwner stream;
  Gate gate;
  int* pointer = nullptr;
  {
    GraphOwner owner;
    capture_allocation(stream, &pointer, &owner.graph);
    InstanceOwner instance(owner.graph);
    enqueue_gate(stream, gate);
    ASSERT_CUDA(cudaGraphLaunch(instance.exec, stream));
  }
  gate.open();
  std::vector<int> values(kInts);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaMemcpy(values.data(), pointer, kInts * sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT_THAT(values, testing::Each(0x01010101));
  EXPECT_CUDA(cudaFree(pointer));
  EXPECT_CUDA_ERROR(cudaFree(pointer), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(Graphs, MayFreeTheMemoryOfOthers) {
  StreamOwner stream;
  int* pointer = nullptr;
  GraphOwner first;
  GraphOwner second;
  capture_allocation(stream, &pointer, &first.graph);
  begin(stream);
  ASSERT_CUDA(cudaFreeAsync(pointer, stream));
  ASSERT_CUDA(cudaStreamEndCapture(stream, &second.graph));
  InstanceOwner freeing(second.graph);
  {
    InstanceOwner allocating(first.graph);
    ASSERT_CUDA(cudaGraphLaunch(allocating.exec, stream));
    ASSERT_CUDA(cudaGraphDestroy(std::exchange(first.graph, nullptr)));
  }
  ASSERT_CUDA(cudaGraphLaunch(freeing.exec, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA_ERROR(cudaFree(pointer), cudaErrorInvalidValue);
  DeviceArray<int> other(kInts);
  ASSERT_CUDA(cudaGraphLaunch(freeing.exec, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  other.set(std::vector<int>(kInts, 2));  // no graph has allocated that
  cudaGetLastError();
}

TEST(Graphs, FreeNothingThatNoGraphHasAllocated) {
  StreamOwner stream;
  DeviceArray<int> array(1);
  int* pointer = nullptr;
  ASSERT_CUDA(cudaMallocAsync(&pointer, sizeof *pointer, stream));
  begin(stream);
  EXPECT_CUDA_ERROR(cudaFreeAsync(array.get(), stream), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaFreeAsync(pointer, stream), cudaErrorInvalidValue);
  GraphOwner owner;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &owner.graph));
  EXPECT_EQ(node_count(owner.graph), 0u);
  ASSERT_CUDA(cudaFreeAsync(pointer, stream));
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  cudaGetLastError();
}

TEST(Graphs, KeepTheirMemoryWhenTheDeviceIsReset) {
  ASSERT_CUDA(cudaSetDevice(7));
  cudaStream_t stream = nullptr;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  int* pointer = nullptr;
  GraphOwner owner;
  capture_allocation(stream, &pointer, &owner.graph);
  ASSERT_CUDA(cudaDeviceReset());
  DeviceArray<int> other(kInts);
  ASSERT_CUDA(cudaGraphDestroy(std::exchange(owner.graph, nullptr)));
  other.set(std::vector<int>(kInts, 2));  // and is freed below
  ASSERT_CUDA(cudaSetDevice(0));
}

}  // namespace
}  // namespace nitinol::vgpu::test
