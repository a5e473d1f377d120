// For how long the same processes have been stopped, as seen by one that looks several times a second. Time in which
// that one is stopped itself does not count: with a job that is suspended as a whole nothing is wrong.
#pragma once

#include <chrono>
#include <string>

#include "base/attendance.h"

namespace nitinol {

class Standstill {
 public:
  using Clock = Attendance::Clock;

  /// At each look: for how long it has been these, "" if none.
  std::chrono::milliseconds of(const std::string& stopped, Clock::time_point now = Clock::now()) {
    since_ += attendance_.missed(now);
    if (stopped != stopped_) since_ = now;
    stopped_ = stopped;
    if (stopped.empty()) return {};
    return std::chrono::floor<std::chrono::milliseconds>(now - since_);
  }

 private:
  std::string stopped_;
  Clock::time_point since_;
  Attendance attendance_;
};

}  // namespace nitinol
