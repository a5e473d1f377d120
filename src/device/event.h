// A CUDA event that is owned. Without timing, so that recording and waiting are cheap.
#pragma once

#include <utility>

#include "device/check.h"

namespace nitinol {

class Event {
 public:
  /// Belongs to the current device.
  static Event create() {
    Event event;
    cuda_check(cudaEventCreateWithFlags(&event.event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return event;
  }
  Event() = default;
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~Event() {
    if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
  }

  cudaEvent_t get() const { return event_; }
  explicit operator bool() const { return event_ != nullptr; }

  void record(cudaStream_t stream) const { cuda_check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  void make_wait(cudaStream_t stream) const {
    cuda_check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  }

  /// In a capture: a node of the graph that records or awaits the event for work outside the graph too. The wait refers
  /// to the record that was submitted last before the graph was launched.
  void record_external(cudaStream_t stream) const {
    cuda_check(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal), "cudaEventRecordWithFlags");
  }
  /// The same at the end of all that is captured so far, but beside what is captured next, which need not wait for it.
  /// `node`: what the last call in this capture made, which goes; null if there was none.
  void record_beside(cudaStream_t stream, cudaGraphNode_t& node) const {
#if defined(NITINOL_CUDA)
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t* last = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
    cuda_check(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &last, &edges, &count),
               "cudaStreamGetCaptureInfo");
    if (node != nullptr && cudaGraphDestroyNode(node) != cudaSuccess) static_cast<void>(cudaGetLastError());
    cuda_check(cudaGraphAddEventRecordNode(&node, graph, last, count, event_), "cudaGraphAddEventRecordNode");
#else
    node = nullptr;
    record_external(stream);
#endif
  }
  void make_wait_external(cudaStream_t stream) const {
    cuda_check(cudaStreamWaitEvent(stream, event_, cudaEventWaitExternal), "cudaStreamWaitEvent");
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace nitinol
