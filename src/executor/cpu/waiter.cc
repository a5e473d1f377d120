#include "executor/cpu/waiter.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vgpu.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace nitinol::cpu {

namespace {

// A processor's pause is some 20 to 50 ns. Whoever waits longer than a microsecond or two lets others run, even when
// there seem to be processors enough: the rank it waits for may have been put on the same one.
constexpr int kSpinsAlone = 64;
constexpr int kYieldsAlone = 200;
constexpr int kSpinsCrowded = 16;
constexpr int kYieldsCrowded = 40;
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
  if (wish >= 0) {
    const int looks = static_cast<int>(std::min<int64_t>(wish, 1'000'000'000));
    patience.spins = std::min(looks, patience.spins);
    patience.yields = looks - patience.spins;
  }
  return patience;
}

void Waiter::about_to_block() { vgpuAboutToBlock(); }

void Waiter::yield() { ::sched_yield(); }

bool Waiter::sleep(uint32_t code) const {
  const timespec longest{0, kLongestSleep};
  return ::syscall(SYS_futex, &own_.header().asleep, FUTEX_WAIT, code, &longest, nullptr, 0) == 0 || errno != ETIMEDOUT;
}

}  // namespace nitinol::cpu
