// Reads from the host's signals for whom kernels wait, and in what.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <type_traits>
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
    Found found{.shortest = read(Signals::kOfCollectives, wait.for_data, wait.for_room).shortest};
    in_collectives_ = wait.for_data;
    in_collectives_.add(wait.for_room);
    for (size_t i = 0; i < wait.messages.size(); ++i) {
      KernelWait::ByProtocol& messages = wait.messages[i];
      found.add(read(Signals::of_messages(static_cast<Protocol>(i)), messages.for_data, messages.for_room));
      wait.for_data.add(wait.messages[i].for_data);
      wait.for_room.add(wait.messages[i].for_room);
    }
    waited_ = wait.any() ? found.shortest : 0;
    if (!wait.any()) {
      told_ = CallNames::kUnknown;
      return wait;
    }
    wait.for_long = found.shortest >= kStandstill;
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
    if (launch.count > 0) return wait;
    for (size_t i = 0; i < wait.messages.size(); ++i) wait.messages[i].stands = (found.standing >> i & 1U) != 0;
    return wait;
  }
  /// For whom those of the last read() are that are in collectives.
  const RankSet& in_collectives() const { return in_collectives_; }
  /// How long each of the waits of the last read() has lasted, without a break. 0: there was none.
  std::chrono::milliseconds waited() const { return std::chrono::milliseconds((uint64_t{waited_} << 20) / 1'000'000); }

 private:
  // As in Signals::waits.
  static constexpr uint32_t kLong = 200;  ///< longer than what lies between looks
  static constexpr uint32_t kStandstill = 30'000;
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  static constexpr uint32_t kTime = (1U << Signals::kTimeBits) - 1;

  /// The shortest of long waits, and a bit for each protocol of which all of them tell that it stands.
  struct Found {
    uint32_t shortest = kNone;
    uint32_t standing = ~0U;

    void add(const Found& other) {
      shortest = std::min(shortest, other.shortest);
      standing &= other.standing;
    }
  };
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

  Found read(int which, RankSet& data, RankSet& room) {
    const volatile Signals::Waits& waits = signals_.waits[which];
    Seen& seen = seen_[static_cast<size_t>(which)];
    Found found = read(waits.for_data, seen.for_data, data);
    found.add(read(waits.for_room, seen.for_room, room));
    return found;
  }
  static Found read(const volatile uint32_t (&waits)[kMaxRanks], Times& seen, RankSet& ranks) {
    Found found;
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      const uint32_t told = waits[rank];
      const uint32_t time = told & kTime;
      if (std::exchange(seen[static_cast<size_t>(rank)], time) == time || time < kLong) continue;
      ranks.add(rank);
      found.add({time, told >> Signals::kTimeBits});
    }
    return found;
  }

  const volatile Signals& signals_;
  const CallNames& names_;
  CallName told_ = CallNames::kUnknown;  ///< by the last read
  uint32_t waited_ = 0;
  RankSet in_collectives_;
  std::array<Seen, std::extent_v<decltype(Signals::waits)>> seen_{};
};

}  // namespace nitinol::cuda
