#include "base/time_stamp.h"

#include <fstream>
#include <limits>
#include <string>

namespace nitinol {
namespace {

using std::chrono::steady_clock;
using std::chrono::system_clock;

template <class Clock>
int64_t nanoseconds_of() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

/// The kernel compares the processors' counters, and uses them itself only if they agree.
bool kernel_uses_counter() {
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  file >> name;
  return name == "tsc";
}

/// One moment, by all clocks: of several readings the one in which the thread was interrupted least.
struct Anchor {
  Anchor() {
    constexpr int kReadings = 5;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < kReadings; ++i) {
      const int64_t before = TimeStamp::now();
      const auto by_steady = nanoseconds_of<steady_clock>();
      const auto by_system = nanoseconds_of<system_clock>();
      const int64_t length = TimeStamp::now() - before;
      if (length >= least) continue;
      least = length;
      stamp = before;
      steady = by_steady;
      since_epoch = by_system;
    }
  }
  int64_t stamp = 0;
  int64_t steady = 0;       ///< nanoseconds
  int64_t since_epoch = 0;  ///< nanoseconds
};

}  // namespace

const bool TimeStamp::kCounterIsEven = kernel_uses_counter();

namespace {
const Anchor kLoaded;  // every stamp comes after it
}  // namespace

TimeScale::TimeScale() {
  const Anchor now;
  stamp_ = now.stamp;
  since_epoch_ = now.since_epoch;
  rate_ = static_cast<long double>(now.steady - kLoaded.steady) / static_cast<long double>(now.stamp - kLoaded.stamp);
}

int64_t TimeScale::nanoseconds(int64_t stamp) const {
  if (stamp == 0) return 0;
  return since_epoch_ - static_cast<int64_t>(static_cast<long double>(stamp_ - stamp) * rate_);
}

}  // namespace nitinol
