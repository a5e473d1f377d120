#include "comm/stream_order.h"

#include <utility>

#include "comm/graph_keeper.h"
#include "device/guards.h"

namespace nitinol {

void StreamOrder::create_events() {
  if (events_->made.load(std::memory_order_relaxed)) return;
  const RelaxedCaptureGuard relaxed;
  events_->done = Event::create();
  events_->captured = Event::create();
  events_->fork = Event::create();
  events_->made.store(true, std::memory_order_release);
}

cudaStream_t StreamOrder::enter(const std::vector<cudaStream_t>& streams, const MemoryOfKernels& memory) {
  create_events();
  const unsigned long long capture = capture_id(streams.front());
  for (size_t i = 1; i < streams.size(); ++i) {
    if (capture_id(streams[i]) != capture) {
      fail(ncclInvalidUsage,
           "one group uses streams of which some are captured (or into different graphs) and others not");
    }
  }
  const cudaStream_t main = streams.front();
  if (capture == 0) {
    const bool same_stream = last_capture_ == 0 && last_stream_ == main && !in_graphs_;
    if (launched_ && !same_stream) events_->done.make_wait(main);
  } else if (last_capture_ != capture) {
    last_record_ = Event::Recorded{};
    keep_with_graph(main,
                    std::make_shared<std::pair<std::shared_ptr<Events>, std::shared_ptr<void>>>(events_, memory()));
    events_->done.make_wait_external(main);
  } else if (last_stream_ != main) {
    events_->captured.make_wait(main);
  }
  for (size_t i = 1; i < streams.size(); ++i) {
    events_->fork.record(streams[i]);
    events_->fork.make_wait(main);
  }
  last_stream_ = main;
  last_capture_ = capture;
  return main;
}

void StreamOrder::leave(const std::vector<cudaStream_t>& streams) {
  if (last_capture_ == 0) {
    events_->done.record(last_stream_);
    launched_ = true;
    for (size_t i = 1; i < streams.size(); ++i) events_->done.make_wait(streams[i]);
  } else {
    events_->done.record_beside(last_stream_, last_record_);
    events_->captured.record(last_stream_);
    in_graphs_ = true;
    for (size_t i = 1; i < streams.size(); ++i) events_->captured.make_wait(streams[i]);
  }
}

bool StreamOrder::idle() const {
  if (!launched_ && !in_graphs_) return true;
  const cudaError_t status = cudaEventQuery(events_->done.get());
  if (status == cudaErrorNotReady) return false;
  cuda_check(status, "cudaEventQuery");
  return true;
}

std::function<bool()> StreamOrder::idle_probe() const {
  return [events = events_] {
    if (!events->made.load(std::memory_order_acquire)) return true;
    const RelaxedCaptureGuard relaxed;
    const cudaError_t status = cudaEventQuery(events->done.get());
    if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
    return status == cudaSuccess;
  };
}

}  // namespace nitinol
