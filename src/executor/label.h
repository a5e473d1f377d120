// Labels: by what is passed on from one who waits to the next, somebody who waits for himself finds out.
//
// Ranks of several communicators may wait for each other in a circle that nobody sees as a whole: each rank sees those
// of its own communicators. So a call that has waited for long takes a number that nobody else has, tells in its arena
// the highest of its own and of those that the calls tell for which it waits, and passes that on to the ranks of other
// communicators that it holds up in its stream. Whoever is told its own number waits for itself: each call on the way
// was seen to wait for the one before, none of them can end before that, and the first has not ended.
//
// Numbers of calls that have ended may still go round in a circle; each step takes one off the steps that are left. And
// as one that comes from outside a circle may be the highest for ever, new ones are drawn now and then.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace nitinol {

/// A label as it stands in shared memory: set and cleared by one thread at a time, and read by any.
class SharedLabel {
 public:
  void set(uint64_t label) {
    label_.store(label);
    if (turns_.load(std::memory_order_relaxed) % 2 == 0) turns_.fetch_add(1);
  }
  void clear() {
    if (turns_.load(std::memory_order_relaxed) % 2 != 0) turns_.fetch_add(1);
  }
  struct Seen {
    uint64_t label = 0;
    uint64_t turn = 0;
  };
  std::optional<Seen> look() const {
    const uint64_t turn = turns_.load();
    if (turn % 2 == 0) return std::nullopt;
    return Seen{label_.load(), turn};
  }
  /// Whether it has been set all the time since it was seen.
  bool still(const Seen& seen) const { return turns_.load() == seen.turn; }

 private:
  std::atomic<uint64_t> turns_;  ///< odd: it is set
  std::atomic<uint64_t> label_;
};

/// The labels of one rank's calls.
class Labels {
 public:
  /// Of somebody for whom this rank waits.
  struct Other {
    int peer = 0;
    uint64_t label = 0;
    bool elsewhere = false;  ///< it is that of a call on another communicator
  };

  /// By a call that waits, now and then: what it is to tell.
  uint64_t next(const std::vector<Other>& others);
  /// By whom a label of this call has come back, over other communicators.
  std::optional<int> came_back(const std::vector<Other>& others) const;
  /// The call ends.
  void forget() {
    own_.clear();
    looks_ = 0;
  }

 private:
  static constexpr uint64_t kSteps = 63;      ///< the lowest bits: how often it may still be passed on
  static constexpr uint64_t kElsewhere = 64;  ///< whether it was passed on from one communicator to another
  static constexpr int kLooksWithOne = 4;

  std::mt19937_64 random_{std::random_device{}() | uint64_t{std::random_device{}()} << 32};
  std::vector<uint64_t> own_;  ///< of the present call, without these bits
  int looks_ = 0;
};

}  // namespace nitinol
