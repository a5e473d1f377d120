// See event.h; and the event functions of the API.
#include "vgpu/event.h"

#include "cuda_runtime_api.h"
#include "vgpu/capture.h"
#include "vgpu/engine.h"
#include "vgpu/pool.h"
#include "vgpu/runtime.h"

namespace nitinol::vgpu {
namespace {

Event* create_event(unsigned flags) {
  Event* const event = pool<Event>().take();
  event->flags = flags;
  event->device = thread_state().device;
  event->alive.store(true, std::memory_order_release);
  return event;
}

void destroy_event(Event& event) {
  {
    std::lock_guard lock(event.mutex);
    event.alive.store(false, std::memory_order_release);
    ++event.version;
    event.recorded = false;
    event.point = {};
    event.captured.reset();
  }
  pool<Event>().give_back(&event);
}

cudaError_t record_in_capture(Event& event, Stream& stream) {
  auto point = std::make_shared<CapturedPoint>();
  if (cudaError_t error = capture_point(stream, point.get())) return error;
  std::lock_guard lock(event.mutex);
  ++event.version;
  event.recorded = true;
  event.captured = std::move(point);
  return cudaSuccess;
}

// What a query or a wait refers to; an error for events that belong to a capture.
cudaError_t awaited_point(Event& event, Point* point) {
  std::shared_ptr<CapturedPoint> captured;
  {
    std::lock_guard lock(event.mutex);
    captured = event.captured;
    *point = event.point;
  }
  return captured != nullptr ? misuse_captured(*captured) : check_unsafe_call();
}

}  // namespace

Event* find_event(cudaEvent_t handle) {
  auto* event = reinterpret_cast<Event*>(handle);
  return event != nullptr && event->alive.load(std::memory_order_acquire) ? event : nullptr;
}

Point event_point(Event& event) {
  std::lock_guard lock(event.mutex);
  return event.captured != nullptr ? Point{} : event.point;
}

namespace {

// The event is recorded at the point; its mutex is held.
void mark_recorded(Event& event, Point point) {
  ++event.version;
  event.recorded = true;
  event.captured.reset();
  event.point = point;
}

// Records an event that needs no time where nothing needs to be submitted for it.
void record_untimed(Event& event, Point point) {
  std::lock_guard lock(event.mutex);
  if (event.alive.load(std::memory_order_relaxed)) mark_recorded(event, point);
}

}  // namespace

void record_event(Event& event, Submission& submission) {
  std::lock_guard lock(event.mutex);
  if (!event.alive.load(std::memory_order_relaxed)) return;
  if (event.timed()) {
    submission.run(Task([&event, version = event.version + 1] {
      std::lock_guard when_executed(event.mutex);
      if (event.version == version) event.time = std::chrono::steady_clock::now();
    }));
  }
  mark_recorded(event, submission.end());
}

// What is declared in the global namespace: functions with C linkage are the same in any namespace.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return guarded([&] {
    constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    if (event == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
    if ((flags & cudaEventInterprocess) != 0) {
      return (flags & cudaEventDisableTiming) != 0 ? cudaErrorNotSupported : cudaErrorInvalidValue;
    }
    *event = handle_of(create_event(flags));
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return guarded([&] {
    Event* event = find_event(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    destroy_event(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event_handle, cudaStream_t stream_handle, unsigned flags) {
  return guarded([&] {
    Event* event = find_event(event_handle);
    Stream* stream = find_stream(stream_handle);
    if (event == nullptr || stream == nullptr) return cudaErrorInvalidResourceHandle;
    if ((flags & ~static_cast<unsigned>(cudaEventRecordExternal)) != 0) return cudaErrorInvalidValue;
    const bool external = flags == cudaEventRecordExternal;
    if (capturing(*stream)) {
      return external ? capture_event_node(*stream, cudaGraphNodeTypeEventRecord, *event)
                      : record_in_capture(*event, *stream);
    }
    if (external) return cudaErrorInvalidValue;
    if (event->device != stream->device) return cudaErrorInvalidResourceHandle;
    if (cudaError_t error = check_legacy(*stream)) return error;
    const bool legacy = stream->kind.load(std::memory_order_relaxed) == StreamKind::kLegacy;
    if (event->timed() || legacy || !end_of_legacy_before(*stream).reached()) {
      Submission submission(*stream);
      record_event(*event, submission);
    } else {
      record_untimed(*event, stream->end());
    }
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return guarded([&] {
    Event* event = find_event(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    Point point;
    if (cudaError_t error = awaited_point(*event, &point)) return error;
    if (point.reached()) return cudaSuccess;
    give_to_worker(*point.stream);
    return cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return guarded([&] {
    Event* event = find_event(handle);
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    Point point;
    if (cudaError_t error = awaited_point(*event, &point)) return error;
    wait_for(point);
    return usable();
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start_handle, cudaEvent_t end_handle) {
  return guarded([&] {
    if (ms == nullptr) return cudaErrorInvalidValue;
    std::chrono::steady_clock::time_point times[2];
    bool ready = true;
    for (int i = 0; i < 2; ++i) {
      Event* event = find_event(i == 0 ? start_handle : end_handle);
      if (event == nullptr) return cudaErrorInvalidResourceHandle;
      std::lock_guard lock(event->mutex);
      if (!event->timed() || !event->recorded) return cudaErrorInvalidResourceHandle;
      if (event->captured != nullptr) return cudaErrorCapturedEvent;
      ready = ready && event->point.reached();
      times[i] = event->time;
    }
    if (!ready) return cudaErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(times[1] - times[0]).count();
    return cudaSuccess;
  });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) {
  return guarded([] { return cudaErrorNotSupported; });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) {
  return guarded([] { return cudaErrorNotSupported; });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace nitinol::vgpu
