// Stream capture: what is put into a capturing stream becomes nodes of a graph instead of running.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "vgpu/graph.h"
#include "vgpu/runtime.h"
#include "vgpu/stream.h"

namespace nitinol::vgpu {

cudaError_t begin_capture(Stream& stream, cudaStreamCaptureMode mode, Graph* into, std::vector<GraphNode*> after);
// The graph is null on an error, and not the caller's if the capture was begun into one.
cudaError_t end_capture(Stream& stream, Graph** graph);

// To be called before a stream is destroyed: nobody else is to take it for one that is captured. What it was captured
// in is invalid, and ends if it began in this stream, since nobody can end it there any more.
void leave_capture(Stream& stream);

// One capture, over one or several streams. Guarded by capture_mutex().
class Capture {
 public:
  uint64_t id = 0;
  Stream* origin = nullptr;
  Graph* graph = nullptr;
  bool owns_graph = true;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  uint64_t thread = 0;  // ThreadState::id of the one that began it
  bool invalid = false;
  std::vector<Stream*> streams;
};

std::mutex& capture_mutex();

inline bool capturing(const Stream& stream) { return stream.capture.load(std::memory_order_acquire) != nullptr; }

// Refuses a call that could spoil a capture in progress (and spoils it), as the thread's capture mode says.
cudaError_t check_unsafe_call();

// Refuses (and invalidates) in whatever mode if a stream of the device is being captured.
cudaError_t check_no_capture_on(int device);

// Refuses (and invalidates) if the stream is being captured, or if it is the legacy stream and a blocking stream of its
// device is.
cudaError_t check_not_capturing(Stream& stream);

// Refuses an operation in the legacy stream while a blocking stream of the device is being captured.
cudaError_t check_legacy(Stream& stream);

// Adds a node to the stream's capture. Takes the task only on success.
cudaError_t capture_task(Stream& stream, cudaGraphNodeType type, Task& task);
// Adds a node that records or waits for an event when the graph is launched.
cudaError_t capture_event_node(Stream& stream, cudaGraphNodeType type, Event& event);

// The part of an event's state that a capture gives it.
struct CapturedPoint {
  uint64_t capture = 0;  // its id; 0: none
  std::vector<GraphNode*> nodes;
};

// cudaEventRecord in a capturing stream.
cudaError_t capture_point(Stream& stream, CapturedPoint* point);
// cudaStreamWaitEvent for such an event: the stream joins the capture.
cudaError_t join_capture(Stream& stream, const CapturedPoint& point);
// A call that makes no sense for such an event: the capture is spoilt.
cudaError_t misuse_captured(const CapturedPoint& point);
// Invalidates the stream's capture and returns the error.
cudaError_t spoil_capture(Stream& stream, cudaError_t error);

// Puts a task into a stream, or into the graph that is being captured from it. Takes the task only on success.
cudaError_t submit(Stream& stream, cudaGraphNodeType type, Task& task);

template <typename Function>
cudaError_t submit(Stream& stream, cudaGraphNodeType type, Function function) {
  Task task(std::move(function));
  return submit(stream, type, task);
}

}  // namespace nitinol::vgpu
