// Shared by the tests of capture and graphs.
#pragma once

#include "vgpu/test_support.h"

namespace nitinol::vgpu::test {

struct GraphOwner {
  GraphOwner() = default;
  GraphOwner(const GraphOwner&) = delete;
  GraphOwner& operator=(const GraphOwner&) = delete;
  ~GraphOwner() {
    if (graph == nullptr) return;
    EXPECT_CUDA(cudaGraphDestroy(graph));
  }
  cudaGraph_t graph = nullptr;
};

struct InstanceOwner {
  explicit InstanceOwner(cudaGraph_t graph) { EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0)); }
  InstanceOwner(const InstanceOwner&) = delete;
  InstanceOwner& operator=(const InstanceOwner&) = delete;
  ~InstanceOwner() { EXPECT_CUDA(cudaGraphExecDestroy(exec)); }
  cudaGraphExec_t exec = nullptr;
};

inline cudaStreamCaptureStatus status_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_CUDA(cudaStreamIsCapturing(stream, &status));
  return status;
}

inline size_t node_count(cudaGraph_t graph) {
  size_t count = 0;
  EXPECT_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  return count;
}

inline void begin(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
  ASSERT_CUDA(cudaStreamBeginCapture(stream, mode));
}

// Ends a capture that has been spoilt.
inline void end_spoilt(cudaStream_t stream) {
  EXPECT_EQ(status_of(stream), cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = reinterpret_cast<cudaGraph_t>(1);
  EXPECT_CUDA_ERROR(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(status_of(stream), cudaStreamCaptureStatusNone);
  cudaGetLastError();
}

}  // namespace nitinol::vgpu::test
