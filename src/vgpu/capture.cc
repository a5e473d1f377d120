// See capture.h.
#include "vgpu/capture.h"

#include <algorithm>
#include <memory>
#include <new>
#include <set>

namespace nitinol::vgpu {
namespace {

std::atomic<int> g_strict_captures{0};  // those that are not relaxed
std::atomic<uint64_t> g_next_capture{1};

// All captures in progress.
std::vector<std::unique_ptr<Capture>>& captures() {
  static auto* const instance = new std::vector<std::unique_ptr<Capture>>;
  return *instance;
}

Capture* find_capture(uint64_t id) {
  for (const auto& capture : captures()) {
    if (capture->id == id) return capture.get();
  }
  return nullptr;
}

void enter(Stream& stream, Capture& capture, std::vector<GraphNode*> dependencies) {
  capture.streams.push_back(&stream);
  stream.capture_dependencies = std::move(dependencies);
  if (stream.blocking()) ++device_at(stream.device).capturing;
  stream.capture.store(&capture, std::memory_order_release);
}

void leave(Stream& stream) {
  stream.capture.store(nullptr, std::memory_order_release);
  stream.capture_dependencies.clear();
  if (stream.blocking()) --device_at(stream.device).capturing;
}

void add_missing(std::vector<GraphNode*>& nodes, const std::vector<GraphNode*>& more) {
  for (GraphNode* node : more) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  }
}

// Whether everything captured in the other streams comes before what the origin stream would do next.
bool joined(const Capture& capture) {
  std::set<const GraphNode*> before;
  std::vector<const GraphNode*> open(capture.origin->capture_dependencies.begin(),
                                     capture.origin->capture_dependencies.end());
  while (!open.empty()) {
    const GraphNode* node = open.back();
    open.pop_back();
    if (!before.insert(node).second) continue;
    open.insert(open.end(), node->dependencies.begin(), node->dependencies.end());
  }
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const Stream* stream) {
    return std::all_of(stream->capture_dependencies.begin(), stream->capture_dependencies.end(),
                       [&](const GraphNode* node) { return before.count(node) > 0; });
  });
}

// The stream's capture if it goes on; else the error.
cudaError_t active_capture(Stream& stream, Capture** capture) {
  *capture = stream.capture.load(std::memory_order_relaxed);
  if (*capture == nullptr) return cudaErrorIllegalState;
  return (*capture)->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

cudaError_t append(Stream& stream, GraphNode node) {
  Capture* capture = stream.capture.load(std::memory_order_relaxed);
  std::vector<GraphNode*> last(1);
  node.dependencies = stream.capture_dependencies;
  last.front() = capture->graph->add(std::move(node));
  stream.capture_dependencies = std::move(last);
  return cudaSuccess;
}

// The capture ends, whatever is to be said of it.
cudaError_t verdict_on(const Capture& capture) {
  if (capture.invalid) return cudaErrorStreamCaptureInvalidated;
  try {
    return joined(capture) ? cudaSuccess : cudaErrorStreamCaptureUnjoined;
  } catch (const std::bad_alloc&) {
    return cudaErrorMemoryAllocation;
  }
}

// Under the capture mutex, for what follows.
std::unique_ptr<Capture> disband(Capture& capture) {
  for (Stream* member : capture.streams) leave(*member);
  if (capture.mode != cudaStreamCaptureModeRelaxed) --g_strict_captures;
  std::unique_ptr<Capture> ended;
  std::erase_if(captures(), [&](auto& other) {
    if (other.get() != &capture) return false;
    ended = std::move(other);
    return true;
  });
  return ended;
}

// What is left of the graph comes back, to be given to the caller or deleted.
cudaError_t take_apart(Stream& stream, std::unique_ptr<Capture>* ended) {
  Capture* capture = stream.capture.load(std::memory_order_relaxed);
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != &stream) {
    capture->invalid = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  const bool relaxed = capture->mode == cudaStreamCaptureModeRelaxed;
  if (!relaxed && capture->thread != thread_state().id) return cudaErrorStreamCaptureWrongThread;
  const cudaError_t error = verdict_on(*capture);
  *ended = disband(*capture);
  return error;
}

// Without the mutex: what the graph held may call the runtime when it is released.
void drop_graph_of(const Capture& capture) {
  if (capture.owns_graph) delete capture.graph;
}

}  // namespace

std::mutex& capture_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

cudaError_t begin_capture(Stream& stream, cudaStreamCaptureMode mode, Graph* into, std::vector<GraphNode*> after) {
  if (mode != cudaStreamCaptureModeGlobal && mode != cudaStreamCaptureModeThreadLocal &&
      mode != cudaStreamCaptureModeRelaxed) {
    return cudaErrorInvalidValue;
  }
  if (stream.kind.load(std::memory_order_relaxed) == StreamKind::kLegacy) return cudaErrorStreamCaptureUnsupported;
  std::lock_guard lock(capture_mutex());
  if (capturing(stream)) return cudaErrorIllegalState;
  auto capture = std::make_unique<Capture>();
  auto own = into == nullptr ? std::make_unique<Graph>() : nullptr;
  const uint64_t thread = thread_state().id;
  captures().reserve(captures().size() + 1);
  enter(stream, *capture, std::move(after));  // the last that needs memory
  capture->id = g_next_capture.fetch_add(1);
  capture->origin = &stream;
  capture->owns_graph = into == nullptr;
  capture->graph = into != nullptr ? into : own.release();
  capture->mode = mode;
  capture->thread = thread;
  if (mode != cudaStreamCaptureModeRelaxed) ++g_strict_captures;
  captures().push_back(std::move(capture));
  return cudaSuccess;
}

cudaError_t end_capture(Stream& stream, Graph** graph) {
  *graph = nullptr;
  std::unique_ptr<Capture> ended;
  cudaError_t error = cudaSuccess;
  {
    std::lock_guard lock(capture_mutex());
    error = take_apart(stream, &ended);
  }
  if (error == cudaSuccess) {
    *graph = ended->graph;
  } else if (ended != nullptr) {
    drop_graph_of(*ended);
  }
  return error;
}

void leave_capture(Stream& stream) {
  if (!capturing(stream)) return;
  std::unique_ptr<Capture> ended;
  {
    std::lock_guard lock(capture_mutex());
    Capture* capture = stream.capture.load(std::memory_order_relaxed);
    if (capture == nullptr) return;
    if (capture->origin == &stream) {
      ended = disband(*capture);
    } else {
      capture->invalid = true;
      std::erase(capture->streams, &stream);
      leave(stream);
    }
  }
  if (ended != nullptr) drop_graph_of(*ended);
}

cudaError_t check_unsafe_call() {
  const ThreadState& thread = thread_state();
  if (g_strict_captures.load() == 0 || thread.capture_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const bool minds_others = thread.capture_mode == cudaStreamCaptureModeGlobal;
  cudaError_t verdict = cudaSuccess;
  std::lock_guard lock(capture_mutex());
  for (const auto& capture : captures()) {
    const bool own = capture->thread == thread.id && capture->mode != cudaStreamCaptureModeRelaxed;
    if (!own && !(minds_others && capture->mode == cudaStreamCaptureModeGlobal)) continue;
    capture->invalid = true;
    verdict = cudaErrorStreamCaptureUnsupported;
  }
  return verdict;
}

cudaError_t check_no_capture_on(int device) {
  cudaError_t verdict = cudaSuccess;
  std::lock_guard lock(capture_mutex());
  for (const auto& capture : captures()) {
    const auto is_there = [device](const Stream* stream) { return stream->device == device; };
    if (capture->invalid || std::none_of(capture->streams.begin(), capture->streams.end(), is_there)) continue;
    capture->invalid = true;
    verdict = cudaErrorStreamCaptureUnsupported;
  }
  return verdict;
}

cudaError_t spoil_capture(Stream& stream, cudaError_t error) {
  std::lock_guard lock(capture_mutex());
  if (Capture* capture = stream.capture.load(std::memory_order_relaxed)) capture->invalid = true;
  return error;
}

cudaError_t check_not_capturing(Stream& stream) {
  if (capturing(stream)) return spoil_capture(stream, cudaErrorStreamCaptureUnsupported);
  return check_legacy(stream);
}

cudaError_t check_legacy(Stream& stream) {
  if (stream.kind.load(std::memory_order_relaxed) != StreamKind::kLegacy) return cudaSuccess;
  if (device_at(stream.device).capturing.load() == 0) return cudaSuccess;
  std::lock_guard lock(capture_mutex());
  for (const auto& capture : captures()) {
    for (const Stream* member : capture->streams) {
      if (member->blocking() && member->device == stream.device) capture->invalid = true;
    }
  }
  return cudaErrorStreamCaptureImplicit;
}

cudaError_t capture_task(Stream& stream, cudaGraphNodeType type, Task& task) {
  std::lock_guard lock(capture_mutex());
  Capture* capture = nullptr;
  if (cudaError_t error = active_capture(stream, &capture)) return error;
  GraphNode node;
  node.type = type;
  const auto captured = node.task = std::make_shared<Task>();
  const cudaError_t error = append(stream, std::move(node));
  if (error == cudaSuccess) *captured = std::move(task);  // else it is still the caller's
  return error;
}

cudaError_t capture_event_node(Stream& stream, cudaGraphNodeType type, Event& event) {
  std::lock_guard lock(capture_mutex());
  Capture* capture = nullptr;
  if (cudaError_t error = active_capture(stream, &capture)) return error;
  GraphNode node;
  node.type = type;
  node.event = &event;
  return append(stream, std::move(node));
}

cudaError_t capture_point(Stream& stream, CapturedPoint* point) {
  std::lock_guard lock(capture_mutex());
  Capture* capture = nullptr;
  if (cudaError_t error = active_capture(stream, &capture)) return error;
  point->capture = capture->id;
  point->nodes = stream.capture_dependencies;
  return cudaSuccess;
}

cudaError_t join_capture(Stream& stream, const CapturedPoint& point) {
  std::lock_guard lock(capture_mutex());
  Capture* capture = find_capture(point.capture);
  Capture* current = stream.capture.load(std::memory_order_relaxed);
  if (capture == nullptr) {
    if (current != nullptr) current->invalid = true;
    return cudaErrorCapturedEvent;
  }
  if (capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (current == capture) {
    add_missing(stream.capture_dependencies, point.nodes);
    return cudaSuccess;
  }
  if (current != nullptr) {
    current->invalid = true;
    capture->invalid = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (stream.kind.load(std::memory_order_relaxed) == StreamKind::kLegacy) {
    capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  enter(stream, *capture, point.nodes);
  return cudaSuccess;
}

cudaError_t misuse_captured(const CapturedPoint& point) {
  std::lock_guard lock(capture_mutex());
  if (Capture* capture = find_capture(point.capture)) capture->invalid = true;
  return cudaErrorCapturedEvent;
}

cudaError_t submit(Stream& stream, cudaGraphNodeType type, Task& task) {
  if (capturing(stream)) return capture_task(stream, type, task);
  if (cudaError_t error = check_legacy(stream)) return error;
  Submission(stream).run(std::move(task));
  return cudaSuccess;
}

}  // namespace nitinol::vgpu
