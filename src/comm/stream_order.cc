#include "comm/stream_order.h"

#include <utility>

#include "comm/kernel_memory.h"
#include "device/guards.h"

namespace nitinol {

void StreamOrder::create_events() {
  if (events_->made.load(std::memory_order_relaxed)) return;
  const RelaxedCaptureGuard relaxed;
  events_->done = Event::create();
  events_->fork = Event::create();
  events_->made.store(true, std::memory_order_release);
}

/// Whoever waits for `done` from now on waits for all that was launched before, too.
void StreamOrder::begin_graphs() {
  if (launches_ == 0) return;
  const RelaxedCaptureGuard relaxed;
  const Stream beside = Stream::create_urgent();
  events_->after(launches_).make_wait(beside.get());
  events_->done.record(beside.get());
}

/// What comes next in the stream waits for all earlier launches.
void StreamOrder::await_earlier(cudaStream_t stream) const {
  if (done_counts_) {
    events_->done.make_wait(stream);
  } else if (launches_ > 0) {
    events_->after(launches_).make_wait(stream);
  }
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
    enter_stream(main);
  } else {
    enter_capture(capture, main, memory);
  }
  ids_.assign(1, last_id_);
  for (size_t i = 1; i < streams.size(); ++i) {
    events_->fork.record(streams[i]);
    events_->fork.make_wait(main);
    if (capture == 0) ids_.push_back(nitinol::stream_id(streams[i]));
  }
  last_stream_ = main;
  return main;
}

/// Its event goes with it if its graph is gone, while something else may be captured.
void StreamOrder::forget_capture() {
  if (capture_ == nullptr) return;
  const RelaxedCaptureGuard relaxed;
  capture_.reset();
}

void StreamOrder::enter_stream(cudaStream_t stream) {
  forget_capture();
  const unsigned long long id = nitinol::stream_id(stream);
  const bool same_stream = id == last_id_ && id != kNoStreamId && !done_counts_;
  if (!same_stream) await_earlier(stream);
  last_id_ = id;
  if (done_counts_ || events_->after(launches_ + 1)) return;
  const RelaxedCaptureGuard relaxed;
  events_->after(launches_ + 1) = Event::create();
}

void StreamOrder::enter_capture(unsigned long long id, cudaStream_t stream, const MemoryOfKernels& memory) {
  forget_capture();
  last_id_ = kNoStreamId;
  const auto found = known_.find(id);
  capture_ = found != known_.end() ? found->second.lock() : nullptr;
  if (capture_ == nullptr) {
    capture_ = begin_capture(stream, memory);
    std::erase_if(known_, [](const auto& each) { return each.second.expired(); });
    known_[id] = capture_;
  } else if (capture_->stream != stream || stream == cudaStreamPerThread) {  // that is another one on each thread
    capture_->last.make_wait(stream);
  }
  capture_->stream = stream;
}

/// A graph that mixes waits once for all that was launched before it.
std::shared_ptr<StreamOrder::Capture> StreamOrder::begin_capture(cudaStream_t stream, const MemoryOfKernels& memory) {
  auto capture = std::make_shared<Capture>();
  {
    const RelaxedCaptureGuard relaxed;
    capture->last = Event::create();
  }
  keep_with_graph(stream, memory(),
                  std::make_shared<std::pair<std::shared_ptr<Events>, std::shared_ptr<Capture>>>(events_, capture),
                  idle_probe());
  if (!events_->graphs_mix) return capture;
  if (!done_counts_) begin_graphs();
  events_->done.make_wait_external(stream);
  return capture;
}

void StreamOrder::leave(const std::vector<cudaStream_t>& streams) {
  if (capture_ == nullptr) {
    const Event& done = done_counts_ ? events_->done : events_->after(launches_ + 1);
    done.record(last_stream_);
    if (!done_counts_) events_->launches.store(++launches_, std::memory_order_release);
    for (size_t i = 1; i < streams.size(); ++i) done.make_wait(streams[i]);
  } else {
    if (events_->graphs_mix) events_->done.record_beside(last_stream_, capture_->record);
    capture_->last.record(last_stream_);
    done_counts_ = events_->graphs_mix;
    events_->in_graphs.store(true, std::memory_order_release);
    for (size_t i = 1; i < streams.size(); ++i) capture_->last.make_wait(streams[i]);
  }
}

bool StreamOrder::idle() const {
  if (launches_ == 0 && !done_counts_) return true;
  const RelaxedCaptureGuard relaxed;  // the program may be capturing something else
  const Event& last = done_counts_ ? events_->done : events_->after(launches_);
  return last.has_happened();
}

namespace {

/// Nothing if it cannot be asked.
std::optional<bool> is_over(const Event& event) {
  const cudaError_t status = cudaEventQuery(event.get());
  if (status == cudaSuccess) return true;
  static_cast<void>(cudaGetLastError());
  return status == cudaErrorNotReady ? std::optional(false) : std::nullopt;
}

}  // namespace

std::function<bool()> StreamOrder::idle_probe() const {
  return [events = events_] {
    if (!events->made.load(std::memory_order_acquire)) return true;
    const RelaxedCaptureGuard relaxed;
    if (events->done_counts()) return is_over(events->done).value_or(false);
    const uint64_t launches = events->launches.load(std::memory_order_acquire);
    return launches == 0 || is_over(events->after(launches)).value_or(false);
  };
}

/// `exactly`: nothing if it is longer ago than is remembered, else no less than are.
std::optional<uint64_t> StreamOrder::through(Events& events, bool exactly) {
  if (events.in_graphs.load(std::memory_order_acquire)) return std::nullopt;
  const RelaxedCaptureGuard relaxed;
  const uint64_t last = events.launches.load(std::memory_order_acquire);
  // One may just be recorded again for the next.
  const uint64_t forgotten = last > kRemembered - 1 ? last - (kRemembered - 1) : 0;
  uint64_t through = forgotten;
  uint64_t not_through = last + 1;
  for (uint64_t asked = last; not_through - through > 1; asked = through + (not_through - through) / 2) {
    const auto over = is_over(events.after(asked));
    if (!over) return std::nullopt;
    (*over ? through : not_through) = asked;
  }
  // Else events may have been recorded again for launches that came meanwhile.
  if (events.launches.load(std::memory_order_acquire) != last) return std::nullopt;
  if (exactly && forgotten > 0 && through == forgotten) return std::nullopt;
  return through;
}

std::function<std::optional<uint64_t>()> StreamOrder::through_probe() const {
  return [events = events_] { return through(*events, false); };
}

std::function<std::optional<uint64_t>()> StreamOrder::exact_probe() const {
  return [events = events_] { return through(*events, true); };
}

}  // namespace nitinol
