// When launches began and ended, by events around each: for whoever wants to know, as they cost time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "device/event.h"
#include "device/stream.h"
#include "model/launch_run.h"

namespace nitinol {

/// The last launches of one rank, on the device that is current when it is made. Everything throws Error.
class LaunchTimes {
 public:
  static constexpr size_t kKept = 256;

  /// Before and after what is put into the stream, which is not captured. By one thread at a time.
  void begin(cudaStream_t stream);
  void end(cudaStream_t stream);

  /// Those that have begun, oldest first, exact to some 10 us of the host's clock and to 1 us between each other, as
  /// far as they are seconds ago. Empty if the device has not come to answer after `patience`. Any thread.
  std::vector<LaunchRun> read(std::chrono::milliseconds patience);

 private:
  struct Slot {
    uint64_t launch = 0;  ///< 0: its events are being recorded
    bool has_end = false;
    Event begun = Event::create_timed();
    Event ended = Event::create_timed();
  };
  // In nanoseconds since the epoch.
  int64_t time_of_now(std::chrono::milliseconds patience) const;
  int64_t time_of(const Event& event, int64_t now) const;

  // Of whoever reads.
  std::mutex reading_;
  Stream stream_ = Stream::create_urgent();  ///< does not wait behind the launches
  Event now_ = Event::create_timed();

  std::mutex mutex_;  ///< of what follows; not held while CUDA records, which waits for the device if a queue is full
  std::array<Slot, kKept> slots_;
  uint64_t launches_ = 0;
};

}  // namespace nitinol
