// In which streams a rank's launches wait, and whom else of this process they hold up there: programs use several
// communicators in one stream.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "executor/cpu/arena.h"
#include "executor/executor.h"
#include "executor/stream_places.h"

namespace nitinol::cpu {

/// Where a launch runs. A group that uses several streams runs in one of them, once the others have come to it, and
/// what is put into those afterwards waits for it.
struct LaunchStreams {
  StreamName main{};
  std::vector<StreamName> joined{};

  bool hold(const StreamName& name) const {
    return name == main || std::find(joined.begin(), joined.end(), name) != joined.end();
  }
};

/// A rank's launches but for those that are captured into graphs, which run nobody knows when: once there are such, no
/// more is said of the rank than whether everything is through.
class Occupancy {
 public:
  /// `idle`, `program_waits`: as in ExecutorSetup.
  struct Asking {
    std::function<bool()> idle{};
    std::function<void(const HeldProgram*)> program_waits{};
  };
  Occupancy(std::shared_ptr<Arena> own, int rank, std::array<uint64_t, 2> identity, Asking asking);
  ~Occupancy();
  Occupancy(const Occupancy&) = delete;
  Occupancy& operator=(const Occupancy&) = delete;

  // By whoever launches, before the launch can run.
  void issue(const LaunchStreams& streams) {
    const StreamName& stream = streams.main;
    const uint64_t number = counts_.issued.load(std::memory_order_relaxed) + 1;
    const bool same = stream_.load(std::memory_order_relaxed) == stream.id &&
                      device_.load(std::memory_order_relaxed) == stream.device;
    const bool alone = streams.joined.empty() && joined_.empty();
    if (!same || !alone || !stream.known()) return issue_elsewhere(streams, number);
    counts_.issued.store(number, std::memory_order_release);
  }
  void capture() { counts_.captured.store(1, std::memory_order_release); }

  // By the launch while it runs, one at a time; `streams` stay until its end.
  void begin(const LaunchStreams& streams) {
    runs_in_ = &streams;
    if (streams.main.known()) count(counts_.begun);
  }
  void end() {
    if (runs_in_->main.known()) count(counts_.ended);
  }
  /// Tells all whose launches stand behind this one in its streams what holds them up: a call that has the label. And
  /// those that have none, if the program makes no call before this one has ended.
  struct Call {
    Signature collective{};  ///< number 0: sends and receives,
    PeerMessage message{};   ///< of which this is one
  };
  void hold_up_others(uint64_t label, const Call& call);
  /// Takes it back.
  void let_others_go();

  // By any other thread.

  /// Whether all that the rank has launched is through, graphs too.
  bool all_through() const;
  /// The program calls nothing before something that waits on the host has ended: tells all ranks of the process that
  /// have nothing to run.
  void hold_up_program(const HeldProgram& held);
  /// Takes it back.
  void let_program_go();

 private:
  /// Without a locked instruction: there is one writer.
  static void count(std::atomic<uint64_t>& number) {
    number.store(number.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void issue_elsewhere(const LaunchStreams& streams, uint64_t number);
  bool waits_behind(const LaunchStreams& streams) const;
  std::optional<int> thread_that_waits_for_launch() const;
  void tell_held_up(const HeldProgram& held, const void* teller, bool on_host);
  void tell_free();

  const std::shared_ptr<Arena> own_;
  const int rank_;
  const std::array<uint64_t, 2> identity_;
  const Asking asking_;
  LaunchCounts& counts_;                                 ///< in the own arena
  const LaunchStreams* runs_in_ = nullptr;               ///< of the launch that runs
  std::atomic<unsigned long long> stream_{kNoStreamId};  ///< of the last launch
  std::atomic<int> device_{-1};                          ///< the same
  std::vector<StreamName> joined_;                       ///< the same; changed under the registry's lock
  std::atomic<uint64_t> first_there_{1};                 ///< since which all launches went there
  const void* teller_ = nullptr;                         ///< of what holds it up; guarded by the registry's lock
  bool told_of_program_ = false;                         ///< by the launch that runs
  std::optional<int> waiting_thread_;                    ///< that the last look has found, of the launch that runs
};

}  // namespace nitinol::cpu
