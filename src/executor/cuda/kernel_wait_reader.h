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
    std::array<bool, kProtocols> begun{};
    uint32_t shortest = read(Signals::kOfCollectives, wait.for_data, wait.for_room);
    in_collectives_ = wait.for_data;
    in_collectives_.add(wait.for_room);
    for (size_t i = 0; i < begun.size(); ++i) {
      shortest = std::min(shortest, read_messages(static_cast<Protocol>(i), wait.messages[i], begun[i]));
      wait.for_data.add(wait.messages[i].for_data);
      wait.for_room.add(wait.messages[i].for_room);
    }
    waited_ = wait.any() ? shortest : 0;
    if (!wait.any()) {
      told_ = CallNames::kUnknown;
      return wait;
    }
    wait.for_long = shortest >= kStandstill;
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
    if (launch.count > 0 || !launch.at_hand) return wait;
    const bool any_begun = std::find(begun.begin(), begun.end(), true) != begun.end();
    for (size_t i = 0; i < begun.size(); ++i) {
      // There is one launch at a time, or one by each protocol.
      wait.messages[i].has_begun = launch.beside_others ? begun[i] : any_begun;
    }
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

  /// The shortest wait in messages by the protocol; `all_begun`: whether some wait, and say that their launch has begun
  /// as a whole.
  uint32_t read_messages(Protocol protocol, KernelWait::ByProtocol& messages, bool& all_begun) {
    const uint32_t of_begun = read(Signals::of_messages(protocol, true), messages.for_data, messages.for_room);
    const uint32_t of_others = read(Signals::of_messages(protocol, false), messages.for_data, messages.for_room);
    all_begun = of_begun != kNone && of_others == kNone;
    return std::min(of_begun, of_others);
  }
  uint32_t read(int which, RankSet& data, RankSet& room) {
    const volatile Signals::Waits& waits = signals_.waits[which];
    Seen& seen = seen_[static_cast<size_t>(which)];
    return std::min(read(waits.for_data, seen.for_data, data), read(waits.for_room, seen.for_room, room));
  }
  /// The shortest of the long waits.
  static uint32_t read(const volatile uint32_t (&waits)[kMaxRanks], Times& seen, RankSet& ranks) {
    uint32_t shortest = kNone;
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
  uint32_t waited_ = 0;
  RankSet in_collectives_;
  std::array<Seen, std::extent_v<decltype(Signals::waits)>> seen_{};
};

}  // namespace nitinol::cuda
