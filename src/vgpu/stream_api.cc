// The API's functions about streams, and the launch of kernels.
#include <algorithm>

#include "cuda_runtime_api.h"
#include "vgpu.h"
#include "vgpu/capture.h"
#include "vgpu/engine.h"
#include "vgpu/host_function.h"
#include "vgpu/runtime.h"

namespace nitinol::vgpu {
namespace {

// Everything that a caller who synchronises with the stream waits for.
Point end_for_caller(Stream& stream) {
  if (stream.kind.load(std::memory_order_relaxed) != StreamKind::kLegacy) return stream.end();
  return Submission(stream).end();  // with waits for the device's blocking streams
}

bool finished(Stream& stream) {
  bool all = true;
  std::vector<Stream*> unfinished;
  if (stream.kind.load(std::memory_order_relaxed) == StreamKind::kLegacy) {
    Device& device = device_at(stream.device);
    std::lock_guard lock(device.mutex);
    for (Stream* other : device.streams) {
      if (other->blocking() && !other->idle()) unfinished.push_back(other);
    }
    all = unfinished.empty();
  } else if (!stream.idle()) {
    unfinished.push_back(&stream);
    all = false;
  }
  for (Stream* other : unfinished) give_to_worker(*other);
  return all;
}

// A kernel in a stream or graph; owns the state.
class LaunchedKernel {
 public:
  explicit LaunchedKernel(const VgpuKernel& kernel) : kernel_(kernel) {}
  LaunchedKernel(LaunchedKernel&& other) noexcept : kernel_(other.kernel_) { other.kernel_.release = nullptr; }
  LaunchedKernel& operator=(LaunchedKernel&&) = delete;
  LaunchedKernel(const LaunchedKernel&) = delete;
  LaunchedKernel& operator=(const LaunchedKernel&) = delete;
  ~LaunchedKernel() {
    if (kernel_.release != nullptr) kernel_.release(kernel_.state);
  }
  void operator()() { kernel_.run(kernel_.state); }

 private:
  VgpuKernel kernel_;
};

// What a task has not been moved out of is not destroyed with it.
class StaysWithCaller {
 public:
  explicit StaysWithCaller(Task& task) : task_(task) {}
  ~StaysWithCaller() { task_.forget(); }
  StaysWithCaller(const StaysWithCaller&) = delete;
  StaysWithCaller& operator=(const StaysWithCaller&) = delete;

 private:
  Task& task_;
};

// Any stream but those that do not exist; for questions about it.
template <typename Answer>
cudaError_t ask(cudaStream_t handle, const void* output, Answer answer) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (output == nullptr) return cudaErrorInvalidValue;
    answer(*stream);
    return cudaSuccess;
  });
}

cudaError_t wait_for_event(Stream& stream, Event& event, bool external) {
  if (external) {
    if (!capturing(stream)) return cudaErrorInvalidValue;
    return capture_event_node(stream, cudaGraphNodeTypeWaitEvent, event);
  }
  std::shared_ptr<CapturedPoint> captured;
  Point point;
  {
    std::lock_guard lock(event.mutex);
    captured = event.captured;
    point = event.point;
    if (!event.recorded) return cudaSuccess;
  }
  if (captured != nullptr) return join_capture(stream, *captured);
  if (capturing(stream)) return spoil_capture(stream, cudaErrorStreamCaptureIsolation);
  if (cudaError_t error = check_legacy(stream)) return error;
  if (!point.reached()) Submission(stream).wait(point);
  return cudaSuccess;
}

}  // namespace
// What is declared in the global namespace: functions with C linkage are the same in any namespace.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, cudaStreamDefault); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return guarded([&] {
    if (stream == nullptr || (flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) return cudaErrorInvalidValue;
    const int clamped = std::clamp(priority, kGreatestPriority, 0);
    *stream = handle_of(*create_stream(StreamKind::kNormal, thread_state().device, flags, clamped));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr || stream->kind.load() != StreamKind::kNormal) return cudaErrorInvalidResourceHandle;
    destroy_stream(*stream);  // with its capture, as in CUDA
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t error = check_not_capturing(*stream)) return error;
    if (cudaError_t error = check_unsafe_call()) return error;
    wait_for(end_for_caller(*stream));
    return usable();
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (cudaError_t error = check_not_capturing(*stream)) return error;
    if (cudaError_t error = check_unsafe_call()) return error;
    return finished(*stream) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t event_handle, unsigned flags) {
  return guarded([&] {
    Stream* stream = find_stream(stream_handle);
    Event* event = find_event(event_handle);
    if (stream == nullptr || event == nullptr) return cudaErrorInvalidResourceHandle;
    if ((flags & ~static_cast<unsigned>(cudaEventWaitExternal)) != 0) return cudaErrorInvalidValue;
    return wait_for_event(*stream, *event, flags == cudaEventWaitExternal);
  });
}

cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t callback, void* user_data, unsigned flags) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (callback == nullptr || flags != 0) return cudaErrorInvalidValue;
    if (cudaError_t error = check_not_capturing(*stream)) return error;
    note_function_of_program();
    return submit(*stream, cudaGraphNodeTypeHost, [=] {
      const InHostFunction inside;
      callback(handle, cudaSuccess, user_data);
    });
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* user_data) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (function == nullptr) return cudaErrorInvalidValue;
    note_function_of_program();
    return submit(*stream, cudaGraphNodeTypeHost, [=] {
      const InHostFunction inside;
      function(user_data);
    });
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return ask(handle, flags, [&](const Stream& stream) { *flags = stream.flags; });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return ask(handle, priority, [&](const Stream& stream) { *priority = stream.priority; });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return ask(handle, device, [&](const Stream& stream) { *device = stream.device; });
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (id == nullptr) return cudaErrorInvalidValue;
    if (capturing(*stream)) return spoil_capture(*stream, cudaErrorStreamCaptureUnsupported);
    *id = stream->id;
    return cudaSuccess;
  });
}

cudaError_t vgpuLaunchKernel(cudaStream_t handle, const VgpuKernel* kernel) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (kernel == nullptr || kernel->run == nullptr) return cudaErrorInvalidValue;
    if (kernel->run != g_innocent_kernel.load(std::memory_order_relaxed)) note_function_of_program();
    Task task{LaunchedKernel(*kernel)};
    const StaysWithCaller state(task);
    return submit(*stream, cudaGraphNodeTypeKernel, task);
  });
}

void vgpuAboutToBlock() { give_away_own_work(); }

}  // extern "C"
#pragma GCC visibility pop

}  // namespace nitinol::vgpu
