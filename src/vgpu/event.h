// Events: a point in a stream, the time at which it was reached, or a place in a capture.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "vgpu/stream.h"

namespace nitinol::vgpu {

struct CapturedPoint;

// Event objects are never deleted, only reused, so that an operation that records a destroyed event does no harm.
struct Event {
  std::atomic<bool> alive{false};
  unsigned flags = 0;
  int device = 0;

  SpinLock mutex;        // guards the rest
  uint64_t version = 0;  // goes on for ever; each record has its own
  bool recorded = false;
  Point point;
  std::chrono::steady_clock::time_point time;
  std::shared_ptr<CapturedPoint> captured;  // when last recorded in a capturing stream

  bool timed() const { return (flags & cudaEventDisableTiming) == 0; }
};

Event* find_event(cudaEvent_t handle);
inline cudaEvent_t handle_of(Event* event) { return reinterpret_cast<cudaEvent_t>(event); }

// The point that waits for the event refer to now.
Point event_point(Event& event);

// Records the event at the end of what is being submitted.
void record_event(Event& event, Submission& submission);

}  // namespace nitinol::vgpu
