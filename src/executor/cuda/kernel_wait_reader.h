// Reads from the host's signals for whom kernels wait, and in what.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "executor/call_names.h"
#include "executor/cuda/parameters.h"
#include "executor/kernel_waits.h"

namespace nitinol::cuda {

class KernelWaitReader {
 public:
  KernelWaitReader(const volatile Signals& signals, const CallNames& names) : signals_(signals), names_(names) {}

  /// What kernels have told since the last call, at least some ten milliseconds ago: those that wait tell it again
  /// every few. Only of waits that are long, and one each: a program that waits here and there all the time, for this
  /// and that, is none that stands still.
  KernelWait read() {
    KernelWait wait;
    const uint32_t data = read(signals_.waits, seen_for_data_, wait.for_data);
    const uint32_t room = read(signals_.waits_for_room, seen_for_room_, wait.for_room);
    if (!wait.any()) {
      told_ = CallNames::kUnknown;
      return wait;
    }
    wait.for_long = std::min(data, room) >= kStandstill;
    told_ = same_while_it_waits(signals_.call);
    const auto call = names_.find(told_);
    wait.unknown = !call;
    if (wait.unknown) return wait;
    const NamedLaunch& launch = call->launch;
    if (launch.count > 0) wait.collective = launch.collectives[call->which];
    wait.among_several = launch.count > 1;
    wait.works = launch.works();
    wait.sends_to = launch.sends_to;
    wait.receives_from = launch.receives_from;
    wait.in_order = launch.in_order;
    return wait;
  }

 private:
  // As in Signals::waits.
  static constexpr uint32_t kLong = 200;  ///< longer than what lies between looks
  static constexpr uint32_t kStandstill = 30'000;

  using Times = std::array<uint32_t, kMaxRanks>;

  /// CTAs of a launch of several collectives may wait in different ones at the same time, and tell them by turns: one
  /// is as good as another.
  CallName same_while_it_waits(CallName call) const {
    return call >> CallNames::kFreeBits == told_ >> CallNames::kFreeBits ? told_ : call;
  }

  /// The shortest of the long waits.
  static uint32_t read(const volatile uint32_t (&waits)[kMaxRanks], Times& seen, RankSet& ranks) {
    uint32_t shortest = std::numeric_limits<uint32_t>::max();
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      const uint32_t told = waits[rank];
      if (std::exchange(seen[static_cast<size_t>(rank)], told) == told || told < kLong) continue;
      ranks.add(rank);
      shortest = std::min(shortest, told);
    }
    return shortest;
  }

  const volatile Signals& signals_;
  const CallNames& names_;
  CallName told_ = CallNames::kUnknown;  ///< by the last read
  Times seen_for_data_{};
  Times seen_for_room_{};
};

}  // namespace nitinol::cuda
