// Finds out that another rank has died although no word of it comes: words of an end go by way of other ranks, and pass
// none that is stopped.
#pragma once

#include <chrono>
#include <optional>

#include "base/process_state.h"

namespace nitinol {

/// What one rank has found of the others' processes. Of one thread.
class DeadPeers {
 public:
  using Clock = std::chrono::steady_clock;

  /// To be called again and again while the rank waits for long: the first rank of `ranks` that is dead by
  /// `state_of(rank)` and that it waits for, once one has been found for a second, so that word of it could have come.
  /// Where a rank is stopped, any that is dead: others may wait for that one, and who is stopped does not tell.
  template <class StateOf, class IsAwaited>
  std::optional<int> look(int ranks, Clock::time_point now, StateOf&& state_of, IsAwaited&& is_awaited) {
    if (now < next_look_) return std::nullopt;
    next_look_ = now + kBetweenLooks;
    const std::optional<int> dead = find(ranks, state_of, is_awaited);
    if (!dead) since_.reset();
    if (dead && !since_) since_ = now;
    return dead && now - *since_ >= kPatienceWithWords ? dead : std::nullopt;
  }

 private:
  template <class StateOf, class IsAwaited>
  static std::optional<int> find(int ranks, StateOf& state_of, IsAwaited& is_awaited) {
    std::optional<int> any;
    bool any_stopped = false;
    for (int rank = 0; rank < ranks; ++rank) {
      const ProcessState state = state_of(rank);
      any_stopped = any_stopped || state == ProcessState::kStopped;
      if (state != ProcessState::kDead) continue;
      if (is_awaited(rank)) return rank;
      if (!any) any = rank;
    }
    return any_stopped ? any : std::nullopt;
  }

  static constexpr std::chrono::milliseconds kBetweenLooks{500};  ///< the system is asked about every process
  static constexpr std::chrono::milliseconds kPatienceWithWords{1000};

  Clock::time_point next_look_{};
  std::optional<Clock::time_point> since_;  ///< when one was first found
};

}  // namespace nitinol
