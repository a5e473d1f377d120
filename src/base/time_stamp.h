// Time stamps that cost a few nanoseconds: the processor's counter where the system trusts it to run evenly on all
// processors, else the system's clock.
#pragma once

#include <chrono>
#include <cstdint>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace nitinol {

class TimeStamp {
 public:
  /// In units of its own, not 0: to be compared with others of this process, and told by a TimeScale.
  static int64_t now() {
#if defined(__x86_64__)
    if (kCounterIsEven) return static_cast<int64_t>(__rdtsc());
#elif defined(__aarch64__)
    int64_t count = 0;
    asm volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#endif
    return std::chrono::steady_clock::now().time_since_epoch().count();
  }

 private:
  static const bool kCounterIsEven;
};

/// What stamps mean by the system's clock as it is set when this is made. Stamps that one scale tells keep their order.
class TimeScale {
 public:
  TimeScale();
  /// In nanoseconds since the epoch; 0 stays 0.
  int64_t nanoseconds(int64_t stamp) const;

 private:
  int64_t stamp_;
  int64_t since_epoch_;  ///< in the moment of stamp_
  long double rate_;     ///< nanoseconds in one unit of stamps
};

}  // namespace nitinol
