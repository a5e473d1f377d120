// The API's functions about stream capture.
#include <algorithm>
#include <utility>

#include "cuda_runtime_api.h"
#include "vgpu/capture.h"
#include "vgpu/runtime.h"

namespace nitinol::vgpu {
namespace {

struct CaptureInfo {
  cudaStreamCaptureStatus* status;
  unsigned long long* id;
  cudaGraph_t* graph;
  const cudaGraphNode_t** dependencies;
  const cudaGraphEdgeData** edges;
  size_t* count;
};

cudaError_t fill_capture_info(const Stream& stream, const CaptureInfo& out) {
  std::lock_guard lock(capture_mutex());
  const Capture* capture = stream.capture.load(std::memory_order_relaxed);
  *out.status = capture == nullptr ? cudaStreamCaptureStatusNone
                : capture->invalid ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
  if (*out.status != cudaStreamCaptureStatusActive) return cudaSuccess;
  std::vector<cudaGraphNode_t>& handles = thread_state().capture_dependencies;
  handles.clear();
  for (GraphNode* node : stream.capture_dependencies) handles.push_back(handle_of(node));
  if (out.id != nullptr) *out.id = capture->id;
  if (out.graph != nullptr) *out.graph = reinterpret_cast<cudaGraph_t>(capture->graph);
  if (out.dependencies != nullptr) *out.dependencies = handles.data();
  if (out.edges != nullptr) *out.edges = nullptr;  // all dependencies are plain ones
  if (out.count != nullptr) *out.count = handles.size();
  return cudaSuccess;
}

cudaError_t update_dependencies(Stream& stream, const cudaGraphNode_t* handles, size_t count, bool replace) {
  std::lock_guard lock(capture_mutex());
  const Capture* capture = stream.capture.load(std::memory_order_relaxed);
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  const auto nodes = nodes_of(*capture->graph, handles, count);
  if (!nodes) return cudaErrorInvalidValue;
  if (replace) stream.capture_dependencies.clear();
  for (GraphNode* node : *nodes) {
    auto& known = stream.capture_dependencies;
    if (std::find(known.begin(), known.end(), node) == known.end()) known.push_back(node);
  }
  return cudaSuccess;
}

}  // namespace
// What is declared in the global namespace: functions with C linkage are the same in any namespace.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    return begin_capture(*stream, mode, nullptr, {});
  });
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t handle, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                          const cudaGraphEdgeData*, size_t count, cudaStreamCaptureMode mode) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (graph == nullptr) return cudaErrorInvalidValue;
    auto after = nodes_of(*graph_of(graph), dependencies, count);
    if (!after) return cudaErrorInvalidValue;
    return begin_capture(*stream, mode, graph_of(graph), *std::move(after));
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (out == nullptr) return cudaErrorInvalidValue;
    Graph* graph = nullptr;
    const cudaError_t error = end_capture(*stream, &graph);
    *out = reinterpret_cast<cudaGraph_t>(graph);
    return error;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (status == nullptr) return cudaErrorInvalidValue;
    if (!capturing(*stream)) {
      *status = cudaStreamCaptureStatusNone;
      const bool legacy = stream->kind.load() == StreamKind::kLegacy;
      return legacy && device_at(stream->device).capturing.load() > 0 ? cudaErrorStreamCaptureImplicit : cudaSuccess;
    }
    return fill_capture_info(*stream, {status, id, graph, dependencies, edges, count});
  });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t handle, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData*, size_t count, unsigned flags) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags > cudaStreamSetCaptureDependencies) return cudaErrorInvalidValue;
    return update_dependencies(*stream, dependencies, count, flags == cudaStreamSetCaptureDependencies);
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return guarded([&] {
    if (mode == nullptr || *mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed) {
      return cudaErrorInvalidValue;
    }
    std::swap(*mode, thread_state().capture_mode);
    return cudaSuccess;
  });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace nitinol::vgpu
