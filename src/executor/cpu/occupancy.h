// In which streams a rank's launches wait, and whom else of this process they hold up there: programs use several
// communicators in one stream.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "executor/cpu/arena.h"
#include "executor/stream_places.h"

namespace nitinol::cpu {

/// A rank's launches but for those that are captured into graphs, which run nobody knows when: once there are such,
/// nothing is said of the rank any more.
class Occupancy {
 public:
  Occupancy(std::shared_ptr<Arena> own, int rank, std::array<uint64_t, 2> identity);
  ~Occupancy();
  Occupancy(const Occupancy&) = delete;
  Occupancy& operator=(const Occupancy&) = delete;

  // By whoever launches, before the launch can run.
  void issue(const StreamName& stream) {
    const uint64_t number = counts_.issued.load(std::memory_order_relaxed) + 1;
    const bool same = stream_.load(std::memory_order_relaxed) == stream.id &&
                      device_.load(std::memory_order_relaxed) == stream.device;
    if (!same || !stream.known()) return issue_elsewhere(stream, number);
    counts_.issued.store(number, std::memory_order_release);
  }
  void capture() { counts_.captured.store(1, std::memory_order_release); }

  // By the launch while it runs, one at a time; `stream` stays until its end.
  void begin(const StreamName& stream) {
    runs_in_ = &stream;
    if (stream.known()) count(counts_.begun);
  }
  void end() {
    if (runs_in_->known()) count(counts_.ended);
  }
  /// Tells all whose launches stand behind this one in its stream what holds them up: a call that has the label. And
  /// those that have none, if the program makes no call before this one has ended.
  void hold_up_others(uint64_t label, const Signature& call);
  /// Takes it back.
  void let_others_go();

 private:
  /// Without a locked instruction: there is one writer.
  static void count(std::atomic<uint64_t>& number) {
    number.store(number.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void issue_elsewhere(const StreamName& stream, uint64_t number);
  bool waits_behind(const StreamName& stream) const;
  bool nothing_issued() const;
  void tell_held_up(uint64_t label, const Signature& call, const Occupancy& holder, bool on_host);
  void tell_free();

  const std::shared_ptr<Arena> own_;
  const int rank_;
  const std::array<uint64_t, 2> identity_;
  LaunchCounts& counts_;                                 ///< in the own arena
  const StreamName* runs_in_ = nullptr;                  ///< of the launch that runs
  std::atomic<unsigned long long> stream_{kNoStreamId};  ///< of the last launch
  std::atomic<int> device_{-1};                          ///< the same
  std::atomic<uint64_t> first_there_{1};                 ///< since which all launches went there
  const Occupancy* holder_ = nullptr;                    ///< guarded by the registry's lock
  std::optional<int> waiting_thread_;                    ///< that the last look has found, of the launch that runs
};

}  // namespace nitinol::cpu
