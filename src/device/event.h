// A CUDA event that is owned.
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "device/check.h"

namespace nitinol {

class Event {
 public:
  /// Belongs to the current device. Without timing, so that recording and waiting are cheap.
  static Event create() { return create_with(cudaEventDisableTiming); }
  static Event create_timed() { return create_with(cudaEventDefault); }
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

  /// Whether what it was recorded behind is through. Throws Error.
  bool has_happened() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    cuda_check(status, "cudaEventQuery");
    return true;
  }
  void record(cudaStream_t stream) const { cuda_check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  void make_wait(cudaStream_t stream) const {
    cuda_check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  }

  /// In a capture: a node of the graph that records or awaits the event for work outside the graph too. The wait refers
  /// to the record that was submitted last before the graph was launched.
  void record_external(cudaStream_t stream) const {
    cuda_check(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal), "cudaEventRecordWithFlags");
  }
  /// What record_beside() put into a graph.
  struct Recorded {
    cudaGraphNode_t node = nullptr;
    std::vector<cudaGraphNode_t> after{};
  };
  /// The same at the end of all that is captured so far, but beside what is captured next, which need not wait for it.
  /// `recorded`: what the last call in this capture made, which moves here; empty if there was none.
  void record_beside(cudaStream_t stream, Recorded& recorded) const {
#if defined(NITINOL_CUDA)
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t* last = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
    cuda_check(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &last, &edges, &count),
               "cudaStreamGetCaptureInfo");
    std::vector<cudaGraphNode_t> after(last, last + count);
    if (recorded.node == nullptr) {
      cuda_check(cudaGraphAddEventRecordNode(&recorded.node, graph, after.data(), after.size(), event_),
                 "cudaGraphAddEventRecordNode");
    } else {
      // What it waited for before comes earlier anyway. A call that put nothing into the graph leaves both alike.
      const auto fresh = missing_in(recorded.after, after);
      const auto old = missing_in(after, recorded.after);
      const std::vector<cudaGraphNode_t> same(std::max(fresh.size(), old.size()), recorded.node);
      cuda_check(cudaGraphAddDependencies(graph, fresh.data(), same.data(), nullptr, fresh.size()),
                 "cudaGraphAddDependencies");
      if (cudaGraphRemoveDependencies(graph, old.data(), same.data(), nullptr, old.size()) != cudaSuccess) {
        static_cast<void>(cudaGetLastError());
      }
    }
    recorded.after = std::move(after);
#else
    recorded = Recorded{};
    record_external(stream);
#endif
  }
  void make_wait_external(cudaStream_t stream) const {
    cuda_check(cudaStreamWaitEvent(stream, event_, cudaEventWaitExternal), "cudaStreamWaitEvent");
  }

 private:
  /// Those of `nodes` that are not among `others`.
  static std::vector<cudaGraphNode_t> missing_in(const std::vector<cudaGraphNode_t>& others,
                                                 const std::vector<cudaGraphNode_t>& nodes) {
    std::vector<cudaGraphNode_t> missing;
    std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(missing),
                 [&](cudaGraphNode_t node) { return std::find(others.begin(), others.end(), node) == others.end(); });
    return missing;
  }
  static Event create_with(unsigned flags) {
    Event event;
    cuda_check(cudaEventCreateWithFlags(&event.event_, flags), "cudaEventCreateWithFlags");
    return event;
  }

  cudaEvent_t event_ = nullptr;
};

}  // namespace nitinol
