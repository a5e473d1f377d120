// In which streams a rank's launches stand, and which of the process's launches stand there before them: programs use
// several communicators in one stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/stream.h"
#include "model/shared_log.h"

namespace nitinol {

/// One stream among all of the process that there ever are; the default stream is one on each device.
struct StreamName {
  unsigned long long id = kNoStreamId;  ///< (device/stream.h)
  int device = -1;

  bool known() const { return id != kNoStreamId; }
  friend bool operator==(const StreamName&, const StreamName&) = default;
};

/// A launch's place among all launches of the process in a stream.
struct StreamPlace {
  uint64_t stream = 0;  ///< names it; 0: not known
  uint64_t turn = 0;    ///< counts how often another rank came to launch there
  bool behind(const StreamPlace& other) const { return stream != 0 && stream == other.stream && turn > other.turn; }
};
/// Whether what has some places stands behind what has others, in any stream.
bool any_behind(const std::vector<StreamPlace>& some, const std::vector<StreamPlace>& others);

/// The places of one rank's launches: written by whoever launches, and read by any thread.
class StreamPlaces {
 public:
  StreamPlaces();

  /// The launches from this one on, counted from 1, go into the stream.
  void add(uint64_t launch, const StreamName& name) {
    const bool same = name == name_ && (queue_ == nullptr || queue_->holder() == self_);
    if (!same) enter(launch, name);
  }
  /// The launch that was added last waits for what was put into this stream before, too, and what comes there later
  /// waits for it.
  void join(uint64_t launch, const StreamName& name);
  /// Nothing if it is not known, or too long ago.
  std::optional<StreamPlace> find(uint64_t launch) const;
  /// That, and those in the streams that it has joined.
  std::vector<StreamPlace> find_all(uint64_t launch) const;

 private:
  /// One stream: who has launched there last, and the turn.
  struct Queue {
    explicit Queue(uint64_t number) : name(number) {}
    static constexpr int kTurnBits = 40;
    uint64_t holder() const { return holder_and_turn.load(std::memory_order_relaxed) >> kTurnBits; }
    const uint64_t name;
    std::atomic<uint64_t> holder_and_turn{0};
  };
  struct Registry;
  static Registry& registry();
  static std::shared_ptr<Queue> find_queue(const StreamName& name);

  void enter(uint64_t launch, const StreamName& name);
  StreamPlace take_turn(Queue& queue) const;

  const uint64_t self_;  ///< tells the ranks of the process apart
  StreamName name_;      ///< where the last launch went
  std::shared_ptr<Queue> queue_;
  SharedLog<256, 3> log_;                       ///< since which launch which stream and turn
  uint64_t last_joined_ = 0;                    ///< the last launch that joined any,
  std::vector<std::shared_ptr<Queue>> joined_;  ///< and which
  SharedLog<256, 3> joins_;                     ///< which launch has joined which stream at which turn
};

}  // namespace nitinol
