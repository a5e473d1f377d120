// Calls for which the runtime has no memory.
#include <thread>

#include "failing_allocation.h"
#include "vgpu/test_support.h"

namespace nitinol::vgpu::test {
namespace {

using testing::FailingAllocation;
using testing::Fails;
using testing::FailsIn;

struct Counted {
  int runs = 0;
  int releases = 0;
};

cudaError_t launch(cudaStream_t stream, Counted& counted) {
  const VgpuKernel kernel{[](void* state) { ++static_cast<Counted*>(state)->runs; }, &counted,
                          [](void* state) { ++static_cast<Counted*>(state)->releases; }};
  return vgpuLaunchKernel(stream, &kernel);
}

/// One allocation fails after the other, until one launch needs no more.
template <typename Launch>
void expect_state_to_stay_with_the_caller(const Launch& fresh_launch) {
  constexpr int kMostAllocations = 100;
  int nth = 0;
  for (bool failed = true; failed; ++nth) {
    ASSERT_LT(nth, kMostAllocations);
    Counted counted;
    failed = fresh_launch(nth, counted) != cudaSuccess;
    EXPECT_EQ(counted.runs, failed ? 0 : 1) << "allocation " << nth;
    EXPECT_EQ(counted.releases, failed ? 0 : 1) << "allocation " << nth;
  }
  EXPECT_GT(nth, 1) << "no allocation failed";
  static_cast<void>(cudaGetLastError());
}

TEST(NoMemory, ALaunchThatFailsLeavesTheStateToTheCaller) {
  expect_state_to_stay_with_the_caller([](int nth, Counted& counted) {
    const StreamOwner stream;
    cudaError_t error = cudaSuccess;
    std::thread fresh([&] {  // which has taken no memory for what it does yet
      const FailingAllocation failing(nth, FailsIn::kThisThread, Fails::kAllFromThere);
      error = launch(stream, counted);
    });
    fresh.join();
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    return error;
  });
}

/// A leak would be a sanitizer's to find.
TEST(NoMemory, AnEventThatCouldNotBeMadeIsNone) {
  std::vector<cudaEvent_t> events;
  events.reserve(100);
  for (int attempt = 0; attempt < 20; ++attempt) {
    cudaEvent_t event = nullptr;
    const FailingAllocation failing(attempt % 4, FailsIn::kThisThread, Fails::kAllFromThere);
    if (cudaEventCreate(&event) == cudaSuccess) events.push_back(event);
  }
  static_cast<void>(cudaGetLastError());
  for (const cudaEvent_t event : events) EXPECT_CUDA(cudaEventDestroy(event));
}

/// Each piece is noted as free by itself, as its neighbours are not. What cannot be noted is not handed out again.
TEST(NoMemory, FreeingNeedsNone) {
  std::vector<void*> pieces(40);
  for (void*& piece : pieces) ASSERT_CUDA(cudaMalloc(&piece, 4096));
  const StreamOwner stream;
  Counted counted;
  ASSERT_CUDA(launch(stream, counted));
  ASSERT_CUDA(cudaStreamSynchronize(stream));  // a thread's first wait takes some
  const auto without_memory = [](auto&& call) {
    const FailingAllocation failing(0, FailsIn::kThisThread, Fails::kAllFromThere);
    return call();
  };
  for (size_t i = 0; i < pieces.size(); i += 2) {
    EXPECT_CUDA(without_memory([&] { return cudaFree(pieces[i]); }));
  }
  for (size_t i = 1; i < pieces.size(); i += 2) {
    ASSERT_CUDA(cudaFreeAsync(pieces[i], stream));
    EXPECT_CUDA(without_memory([&] { return cudaStreamSynchronize(stream); }));
  }
  for (void*& piece : pieces) ASSERT_CUDA(cudaMalloc(&piece, 4096));
  for (void* const piece : pieces) ASSERT_CUDA(cudaFree(piece));
}

TEST(NoMemory, ACaptureThatFailsLeavesTheStateToTheCaller) {
  expect_state_to_stay_with_the_caller([](int nth, Counted& counted) {
    const StreamOwner stream;
    cudaGraph_t graph = nullptr;
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaError_t error = cudaSuccess;
    {
      const FailingAllocation failing(nth, FailsIn::kThisThread, Fails::kAllFromThere);
      error = launch(stream, counted);
    }
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t executable = nullptr;
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_CUDA(cudaGraphLaunch(executable, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    return error;
  });
}

/// The stream is captured if the capture has begun, and goes on to be used.
void expect_capture_to_end(cudaStream_t stream, cudaError_t begun) {
  cudaGraph_t graph = nullptr;
  if (begun == cudaSuccess) {
    EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
  }
  Counted counted;
  EXPECT_CUDA(launch(stream, counted));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(counted.runs, 1);
  if (graph != nullptr) {
    EXPECT_CUDA(cudaGraphDestroy(graph));
  }
}

TEST(NoMemory, ACaptureThatCouldNotBeginIsNone) {
  for (int nth = 0; nth < 20; ++nth) {
    const StreamOwner stream;
    cudaError_t begun = cudaSuccess;
    {
      const FailingAllocation failing(nth, FailsIn::kThisThread, Fails::kAllFromThere);
      begun = cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    }
    expect_capture_to_end(stream, begun);
  }
  static_cast<void>(cudaGetLastError());
}

TEST(NoMemory, ACaptureEndsAlsoWithAnError) {
  for (int nth = 0; nth < 20; ++nth) {
    const StreamOwner stream;
    Counted counted;
    cudaGraph_t graph = nullptr;
    EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    EXPECT_CUDA(launch(stream, counted));
    cudaError_t ended = cudaSuccess;
    {
      const FailingAllocation failing(nth, FailsIn::kThisThread, Fails::kAllFromThere);
      ended = cudaStreamEndCapture(stream, &graph);
    }
    EXPECT_EQ(graph == nullptr, ended != cudaSuccess);
    EXPECT_EQ(counted.releases, ended == cudaSuccess ? 0 : 1);
    if (graph != nullptr) {
      EXPECT_CUDA(cudaGraphDestroy(graph));
    }
    expect_capture_to_end(stream, cudaErrorUnknown);
  }
  static_cast<void>(cudaGetLastError());
}

}  // namespace
}  // namespace nitinol::vgpu::test
