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
constexpr long kSecond = 1'000'000'000;

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

/// Until a point in time, as the program's signals, a profiler's say, may come more often than that.
bool Waiter::sleep(uint32_t code) const {
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += kLongestSleep;
  until.tv_sec += until.tv_nsec / kSecond;
  until.tv_nsec %= kSecond;
  while (true) {
    std::atomic<uint32_t>* const bell = &own_.header().asleep;
    if (::syscall(SYS_futex, bell, FUTEX_WAIT_BITSET, code, &until, nullptr, FUTEX_BITSET_MATCH_ANY) == 0) return true;
    if (errno != EINTR) return errno != ETIMEDOUT;
  }
}

}  // namespace nitinol::cpu
