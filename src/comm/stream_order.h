// Keeps one communicator's launches in the order in which they were issued, whatever streams and graphs they run in.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "device/event.h"
#include "device/stream.h"

namespace nitinol {

class StreamOrder {
 public:
  using MemoryOfKernels = std::function<std::shared_ptr<void>()>;

  StreamOrder() : events_(std::make_shared<Events>()) {}

  /// Begins a launch: what is enqueued in the stream that it returns until leave() comes after everything that was
  /// enqueued before in any of the streams and by earlier launches, and before anything that is enqueued in any of the
  /// streams later. The streams belong to the current device; all are captured into one graph, or none is. A graph
  /// keeps alive what `memory` returns. Throws Error.
  cudaStream_t enter(const std::vector<cudaStream_t>& streams, const MemoryOfKernels& memory);
  void leave(const std::vector<cudaStream_t>& streams);
  /// Whether the launch that was begun last goes into a graph.
  bool captured() const { return last_capture_ != 0; }

  /// Whether all launches so far are done. Graphs count as often as they were launched until now.
  bool idle() const;
  /// Asks that from any thread, and as long as it is kept. Errors count as "not".
  std::function<bool()> idle_probe() const;

 private:
  void create_events();

  struct Events {
    Event done;      ///< recorded after every launch, in graphs too (by an external record)
    Event captured;  ///< recorded after every captured launch, for other streams of the same capture
    Event fork;      ///< gathers the other streams of a launch
    std::atomic<bool> made{false};
  };
  std::shared_ptr<Events> events_;  ///< graphs use them too; made when first needed
  bool launched_ = false;
  bool in_graphs_ = false;  ///< some launch was captured: `done` may be recorded by a graph at any time
  cudaStream_t last_stream_ = nullptr;
  unsigned long long last_capture_ = 0;
  Event::Recorded last_record_;  ///< of `done` in that capture
};

}  // namespace nitinol
