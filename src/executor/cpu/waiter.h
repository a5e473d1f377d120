// How a rank waits: it looks a while, lets others run a while, then sleeps until somebody rings its bell.
#pragma once

#include <atomic>
#include <cstdint>

#include "executor/cpu/arena.h"

namespace nitinol::cpu {

/// How long to look before sleeping.
struct Patience {
  int spins = 0;   ///< looks without letting go of the processor
  int yields = 0;  ///< looks with letting others run in between

  /// `ranks` that share this host's processors; `wish`: the user's number of looks, or negative.
  static Patience of(int ranks, int64_t wish);
};

class Waiter {
 public:
  /// Sleeps on the bell of the rank's own arena.
  Waiter(const Arena& own, Patience patience) : own_(own), patience_(patience) {}

  bool aborted() const { return own_.header().aborted.load(std::memory_order_relaxed) != 0; }

  /// How many waits took longer than a few looks.
  uint64_t long_waits() const { return long_waits_; }

  /// Returns true once ready() does, false if the rank is told to abort. Whoever makes ready() true rings with `code`.
  /// Calls stalled() about ten times a second while nothing happens.
  template <class Ready, class Stalled>
  bool until(Ready&& ready, uint32_t code, Stalled&& stalled) {
    if (ready()) return true;
    for (int i = 0; i < patience_.spins; ++i) {
      pause();
      if (ready()) return true;
    }
    ++long_waits_;
    about_to_block();
    for (int i = 0; !aborted(); ++i) {
      if (i < patience_.yields) {
        yield();
        if ((i & kYieldsPerLook) == kYieldsPerLook) stalled();
      } else {
        // From here on whoever makes ready() true, or aborts, sees that we sleep; what happened before, we see now.
        own_.header().asleep.store(code);
        const bool rung = ready() || own_.header().aborted.load() != 0 || sleep(code);
        own_.header().asleep.store(kAwake);
        if (!rung && !ready()) stalled();
      }
      if (ready()) return true;
    }
    return false;
  }

 private:
  static constexpr int kYieldsPerLook = (1 << 18) - 1;

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
  }
  /// Others may do what else this thread was to do: what we wait for may be among it.
  static void about_to_block();
  static void yield();
  /// Until the bell rings, or a moment has passed (false): then we look ourselves, in case a ringer was killed
  /// half-way.
  bool sleep(uint32_t code) const;

  const Arena& own_;
  Patience patience_;
  uint64_t long_waits_ = 0;
};

}  // namespace nitinol::cpu
