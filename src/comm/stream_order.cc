#include "comm/stream_order.h"

#include "device/guards.h"

namespace nitinol {

void StreamOrder::create_events() {
  if (done_) return;
  const RelaxedCaptureGuard relaxed;
  done_ = Event::create();
  captured_ = Event::create();
  fork_ = Event::create();
}

void StreamOrder::run(const std::vector<cudaStream_t>& streams, const std::function<void(cudaStream_t)>& launch) {
  create_events();
  const unsigned long long capture = capture_id(streams.front());
  for (const cudaStream_t stream : streams) {
    if (capture_id(stream) != capture) {
      fail(ncclInvalidUsage,
           "one group uses streams of which some are captured (or into different graphs) and others not");
    }
  }
  if (capture == 0) {
    run_eagerly(streams, launch);
  } else {
    run_captured(streams, capture, launch);
  }
  last_stream_ = streams.front();
  last_capture_ = capture;
}

void StreamOrder::run_eagerly(const std::vector<cudaStream_t>& streams,
                              const std::function<void(cudaStream_t)>& launch) {
  const cudaStream_t main = streams.front();
  const bool same_stream = last_capture_ == 0 && last_stream_ == main && !in_graphs_;
  if (launched_ && !same_stream) done_.make_wait(main);
  for (size_t i = 1; i < streams.size(); ++i) {
    fork_.record(streams[i]);
    fork_.make_wait(main);
  }
  launch(main);
  done_.record(main);
  launched_ = true;
  for (size_t i = 1; i < streams.size(); ++i) done_.make_wait(streams[i]);
}

void StreamOrder::run_captured(const std::vector<cudaStream_t>& streams, unsigned long long capture,
                               const std::function<void(cudaStream_t)>& launch) {
  const cudaStream_t main = streams.front();
  if (last_capture_ != capture) {
    done_.make_wait_external(main);
  } else if (last_stream_ != main) {
    captured_.make_wait(main);
  }
  for (size_t i = 1; i < streams.size(); ++i) {
    fork_.record(streams[i]);
    fork_.make_wait(main);
  }
  launch(main);
  done_.record_external(main);
  captured_.record(main);
  in_graphs_ = true;
  for (size_t i = 1; i < streams.size(); ++i) captured_.make_wait(streams[i]);
}

void StreamOrder::wait_idle() const {
  if (launched_ || in_graphs_) cuda_check(cudaEventSynchronize(done_.get()), "cudaEventSynchronize");
}

bool StreamOrder::idle() const {
  if (!launched_ && !in_graphs_) return true;
  const cudaError_t status = cudaEventQuery(done_.get());
  if (status == cudaErrorNotReady) return false;
  cuda_check(status, "cudaEventQuery");
  return true;
}

}  // namespace nitinol
