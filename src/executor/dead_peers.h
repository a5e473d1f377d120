// Finds out that another rank has died although no word of it comes: words of an end go by way of other ranks, and pass
// none that is stopped.
#pragma once

#include <chrono>
#include <optional>

namespace nitinol {

/// What one rank has found of the others' processes. Of one thread.
class DeadPeers {
 public:
  using Clock = std::chrono::steady_clock;

  /// To be called again and again while the rank waits for long: the first rank of `ranks` for which `is_dead(rank)`,
  /// once one has been found for a second, so that word of it could have come.
  template <class IsDead>
  std::optional<int> look(int ranks, Clock::time_point now, IsDead&& is_dead) {
    if (now < next_look_) return std::nullopt;
    next_look_ = now + kBetweenLooks;
    int dead = 0;
    while (dead < ranks && !is_dead(dead)) ++dead;
    if (dead == ranks) {
      since_.reset();
      return std::nullopt;
    }
    if (!since_) since_ = now;
    return now - *since_ < kPatienceWithWords ? std::nullopt : std::optional(dead);
  }

 private:
  static constexpr std::chrono::milliseconds kBetweenLooks{500};  ///< the system is asked about every process
  static constexpr std::chrono::milliseconds kPatienceWithWords{1000};

  Clock::time_point next_look_{};
  std::optional<Clock::time_point> since_;  ///< when one was first found
};

}  // namespace nitinol
