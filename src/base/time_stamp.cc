#include "base/time_stamp.h"

#include <fstream>
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

/// One moment, by both clocks.
struct Anchor {
  int64_t stamp = TimeStamp::now();
  int64_t nanoseconds = nanoseconds_of<steady_clock>();
};

}  // namespace

const bool TimeStamp::kCounterIsEven = kernel_uses_counter();

namespace {
const Anchor kLoaded;  // every stamp comes after it
}  // namespace

int64_t TimeStamp::nanoseconds(int64_t stamp) {
  if (stamp == 0) return 0;
  const Anchor now;
  const int64_t since_epoch = nanoseconds_of<system_clock>();
  const auto rate = static_cast<long double>(now.nanoseconds - kLoaded.nanoseconds) /
                    static_cast<long double>(now.stamp - kLoaded.stamp);
  return since_epoch - static_cast<int64_t>(static_cast<long double>(now.stamp - stamp) * rate);
}

}  // namespace nitinol
