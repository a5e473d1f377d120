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
    const uint32_t others = read(signals_.waits, seen_, wait.for_data, wait.for_room);
    const bool beyond_first = wait.any();
    const uint32_t first = read(signals_.first_waits, first_seen_, wait.first_for_data, wait.first_for_room);
    wait.for_data.add(wait.first_for_data);
    wait.for_room.add(wait.first_for_room);
    if (!wait.any()) {
      told_ = CallNames::kUnknown;
      return wait;
    }
    wait.for_long = std::min(others, first) >= kStandstill;
    told_ = same_while_it_waits(signals_.call);
    const auto call = names_.find(told_);
    wait.unknown = !call;
    if (wait.unknown) return wait;
    const NamedLaunch& launch = call->launch;
    if (launch.count > 0) wait.collective = launch.collectives[call->which];
    wait.beyond_first = launch.count == 0 && beyond_first;
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
  struct Seen {
    Times for_data{};
    Times for_room{};
  };

  /// CTAs of a launch of several collectives may wait in different ones at the same time, and tell them by turns: one
  /// is as good as another.
  CallName same_while_it_waits(CallName call) const {
    return call >> CallNames::kFreeBits == told_ >> CallNames::kFreeBits ? told_ : call;
  }

  static uint32_t read(const volatile Signals::Waits& waits, Seen& seen, RankSet& data, RankSet& room) {
    return std::min(read(waits.for_data, seen.for_data, data), read(waits.for_room, seen.for_room, room));
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
  Seen seen_;
  Seen first_seen_;
};

}  // namespace nitinol::cuda
