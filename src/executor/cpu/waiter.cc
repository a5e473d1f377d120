#include "executor/cpu/waiter.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vgpu.h>

#include <algorithm>
#include <ctime>

namespace nitinol::cpu {

namespace {

constexpr int kSpinsAlone = 2000;
constexpr int kYieldsAlone = 50;
constexpr int kSpinsCrowded = 20;
constexpr int kYieldsCrowded = 20;
constexpr long kLongestSleep = 100'000'000;  // nanoseconds

int processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

Patience Patience::of(int ranks, int64_t wish) {
  const bool crowded = ranks > processors();
  Patience patience{crowded ? kSpinsCrowded : kSpinsAlone, crowded ? kYieldsCrowded : kYieldsAlone};
  if (wish >= 0) patience.spins = static_cast<int>(std::min<int64_t>(wish, 1'000'000'000));
  return patience;
}

void Waiter::yield() { ::sched_yield(); }

void Waiter::sleep(uint32_t code) const {
  vgpuAboutToBlock();
  const timespec longest{0, kLongestSleep};
  ::syscall(SYS_futex, &own_.header().asleep, FUTEX_WAIT, code, &longest, nullptr, 0);
}

}  // namespace nitinol::cpu
