// What functions of the host may do that streams and graphs call.
#include <string>

#include "vgpu/graph_test_support.h"

namespace nitinol::vgpu::test {
namespace {

struct Answers {
  cudaStream_t stream = nullptr;  // another one, without work
  std::vector<std::string> names;
  std::string last_error;
};

void ask(void* to) {
  Answers& answers = *static_cast<Answers*>(to);
  void* pointer = nullptr;
  int device = 0;
  cudaEvent_t event = nullptr;
  const VgpuKernel kernel{[](void*) {}, nullptr, nullptr};
  for (const cudaError_t error :
       {cudaMalloc(&pointer, 100), cudaGetDevice(&device), cudaSetDevice(0), cudaStreamQuery(answers.stream),
        cudaStreamSynchronize(answers.stream), cudaEventCreate(&event), vgpuLaunchKernel(answers.stream, &kernel),
        cudaLaunchHostFunc(
            answers.stream, [](void*) {}, nullptr)}) {
    answers.names.emplace_back(cudaGetErrorName(error));
  }
  answers.last_error = cudaGetErrorString(cudaGetLastError());
}

// What a function was told that the stream calls once all is put into it.
template <typename Put>
void expect_refusals(cudaStream_t stream, const Put& put) {
  StreamOwner other;
  Answers answers{other, {}, {}};
  put(&answers);
  EXPECT_CUDA_ERROR(cudaSetDevice(100), cudaErrorInvalidDevice);
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(answers.names, std::vector<std::string>(8, "cudaErrorNotPermitted"));
  EXPECT_EQ(answers.last_error, "operation not permitted");
  EXPECT_CUDA_ERROR(cudaGetLastError(), cudaErrorInvalidDevice);  // this thread's, whoever has called the function
  int* pointer = nullptr;
  EXPECT_CUDA(cudaMalloc(&pointer, sizeof *pointer));
  EXPECT_CUDA(cudaFree(pointer));
}

TEST(HostFunctions, MayNotCallTheRuntime) {
  StreamOwner stream;
  expect_refusals(stream, [&](Answers* answers) { ASSERT_CUDA(cudaLaunchHostFunc(stream, ask, answers)); });
}

TEST(HostFunctions, MayNotCallTheRuntimeAsCallbacks) {
  StreamOwner stream;
  expect_refusals(stream, [&](Answers* answers) {
    const auto callback = [](cudaStream_t, cudaError_t, void* to) { ask(to); };
    ASSERT_CUDA(cudaStreamAddCallback(stream, callback, answers, 0));
  });
}

TEST(HostFunctions, MayNotCallTheRuntimeInGraphs) {
  StreamOwner stream;
  GraphOwner captured;
  GraphOwner built;
  expect_refusals(stream, [&](Answers* answers) {
    begin(stream);
    ASSERT_CUDA(cudaLaunchHostFunc(stream, ask, answers));
    ASSERT_CUDA(cudaStreamEndCapture(stream, &captured.graph));
    InstanceOwner instance(captured.graph);
    ASSERT_CUDA(cudaGraphLaunch(instance.exec, stream));
  });
  expect_refusals(stream, [&](Answers* answers) {
    ASSERT_CUDA(cudaGraphCreate(&built.graph, 0));
    cudaGraphNode_t node = nullptr;
    const cudaHostNodeParams params{ask, answers};
    ASSERT_CUDA(cudaGraphAddHostNode(&node, built.graph, nullptr, 0, &params));
    InstanceOwner instance(built.graph);
    ASSERT_CUDA(cudaGraphLaunch(instance.exec, stream));
  });
}

}  // namespace
}  // namespace nitinol::vgpu::test
