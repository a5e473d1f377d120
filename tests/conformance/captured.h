// What is called while a stream is captured, as a graph that can be launched.
#pragma once

#include <cuda_runtime.h>

#include <functional>

#include "cluster.h"

namespace nitinol::testing {

/// The caller's to destroy.
inline cudaGraphExec_t captured(cudaStream_t stream, const std::function<void()>& calls) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  EXPECT_CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  calls();
  EXPECT_CALL(cudaStreamEndCapture(stream, &graph));
  EXPECT_CALL(cudaGraphInstantiate(&executable, graph, 0));
  EXPECT_CALL(cudaGraphDestroy(graph));
  return executable;
}

}  // namespace nitinol::testing
