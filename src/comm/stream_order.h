// Keeps one communicator's launches in the order in which they were issued, whatever streams and graphs they run in.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/event.h"
#include "device/stream.h"

namespace nitinol {

class StreamOrder {
 public:
  using MemoryOfKernels = std::function<std::shared_ptr<void>()>;

  /// `graphs_mix`: graphs run in the order in which they are launched, among each other and with launches in any
  /// streams. Else they record and await nothing outside of themselves, as bodies of conditional nodes must not, and
  /// the program sees to their order.
  explicit StreamOrder(bool graphs_mix = true) : events_(std::make_shared<Events>(graphs_mix)) {}
  /// One for which nothing has been launched yet, of the same kind.
  StreamOrder anew() const { return StreamOrder(events_->graphs_mix); }

  /// Begins a launch: what is enqueued in the stream that it returns until leave() comes after everything that was
  /// enqueued before in any of the streams and by earlier launches, and before anything that is enqueued in any of the
  /// streams later. The streams belong to the current device; all are captured into one graph, or none is. A graph
  /// keeps alive what `memory` returns. Throws Error.
  cudaStream_t enter(const std::vector<cudaStream_t>& streams, const MemoryOfKernels& memory);
  void leave(const std::vector<cudaStream_t>& streams);
  /// Whether the launch that was begun last goes into a graph.
  bool captured() const { return capture_ != nullptr; }
  /// The stream in which it runs (device/stream.h), kNoStreamId if it goes into a graph; else behind that the others.
  std::span<const unsigned long long> stream_ids() const { return ids_; }

  /// Whether all launches so far are done. Graphs that mix count as often as they were launched until now, others do
  /// not.
  bool idle() const;
  /// Asks that from any thread, and as long as it is kept. Errors count as "not".
  std::function<bool()> idle_probe() const;
  /// Asks how many launches are through, of those that were not captured, from any thread and as long as it is kept. If
  /// it is longer ago than is remembered, no less than are; nothing if others came meanwhile, or it cannot be asked, or
  /// once something was captured.
  std::function<std::optional<uint64_t>()> through_probe() const;
  /// The same, but nothing if it is longer ago than is remembered.
  std::function<std::optional<uint64_t>()> exact_probe() const;

 private:
  /// How many launches are remembered one by one.
  static constexpr uint64_t kRemembered = 128;

  struct Events {
    explicit Events(bool mix) : graphs_mix(mix) {}

    const bool graphs_mix;
    /// Recorded after launches in turn, until a graph that mixes is captured; each made when first needed.
    std::array<Event, kRemembered> one_by_one;
    std::atomic<uint64_t> launches{0};  ///< how many of those there were
    /// Recorded after every launch from then on, in graphs too (by an external record).
    Event done;
    Event fork;  ///< gathers the other streams of a launch
    std::atomic<bool> made{false};
    std::atomic<bool> in_graphs{false};  ///< some launch was captured

    /// Whether a graph may record `done` at any time.
    bool done_counts() const { return graphs_mix && in_graphs.load(std::memory_order_acquire); }
    Event& after(uint64_t launch) { return one_by_one[(launch - 1) % kRemembered]; }
  };
  /// What has been captured into one graph. There may be several such captures at once, which take turns.
  struct Capture {
    Event last;                     ///< recorded after every launch, for other streams of the same capture
    cudaStream_t stream = nullptr;  ///< of the last launch
    Event::Recorded record;         ///< of `done`
  };
  static std::optional<uint64_t> through(Events& events, bool exactly);
  void create_events();
  void begin_graphs();
  void await_earlier(cudaStream_t stream) const;
  void forget_capture();
  void enter_stream(cudaStream_t stream);
  void enter_capture(unsigned long long id, cudaStream_t stream, const MemoryOfKernels& memory);
  std::shared_ptr<Capture> begin_capture(cudaStream_t stream, const MemoryOfKernels& memory);

  std::shared_ptr<Events> events_;  ///< graphs use them too; made when first needed
  uint64_t launches_ = 0;           ///< as the events count them
  bool done_counts_ = false;        ///< the same
  cudaStream_t last_stream_ = nullptr;
  unsigned long long last_id_ = kNoStreamId;
  std::vector<unsigned long long> ids_;                         ///< of the last launch, that one first
  std::shared_ptr<Capture> capture_;                            ///< of the last launch; null: none
  std::map<unsigned long long, std::weak_ptr<Capture>> known_;  ///< by id; each lives as long as its graph
};

}  // namespace nitinol
