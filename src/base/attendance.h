// Whoever waits and looks now and then may itself be stopped meanwhile, by SIGSTOP or with all of its machine. In that
// time it has waited for nobody.
#pragma once

#include <chrono>
#include <optional>

namespace nitinol {

class Attendance {
 public:
  using Clock = std::chrono::steady_clock;

  /// At each look, several times a second: how much of the time since the last one does not count.
  Clock::duration missed(Clock::time_point now) {
    const Clock::duration gap = last_look_ ? now - *last_look_ : Clock::duration::zero();
    last_look_ = now;
    return gap > kMostBetweenLooks ? gap : Clock::duration::zero();
  }

 private:
  /// A machine that is busy may make whoever looks that late.
  static constexpr std::chrono::seconds kMostBetweenLooks{1};

  std::optional<Clock::time_point> last_look_;
};

}  // namespace nitinol
