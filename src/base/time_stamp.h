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
  /// In units of its own, not 0: to be compared with others of this process, and told by nanoseconds().
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
  /// A stamp in nanoseconds since the epoch, by the system's clock as it is set now; 0 stays 0.
  static int64_t nanoseconds(int64_t stamp);

 private:
  static const bool kCounterIsEven;
};

}  // namespace nitinol
