// Health monitoring (RAS) as communicators see it: each rank takes a seat while it lives, and from then on answers what
// people ask about the job. The first seat of a process starts its one thread, the last one that is left ends it;
// nothing here is touched by operations.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "diagnostics/ras/report.h"
#include "model/peer.h"

namespace nitinol::ras {

/// A rank that can be asked. Called on the service's thread, or on that of whoever leaves the seat; must be quick, and
/// must not take or leave a seat.
class Subject {
 public:
  virtual ~Subject() = default;
  /// Everything but the rank's number.
  virtual RankReport health() const = 0;
  /// Whether there is a failure in that, at once.
  virtual bool has_failed() const = 0;
  /// The flight recorder.
  virtual std::string dump(bool as_text) const = 0;
};

/// A rank of a communicator as it is seated.
struct Newcomer {
  CommunicatorId id{};
  Secret secret;  ///< of the communicator
  int rank = 0;
  std::span<const Peer> peers;  ///< all its ranks
};

/// Before a communicator is made, so that the signal that asks for dumps does not end a process that waits for others
/// in its first one.
void watch_dump_signal() noexcept;

class Process;

/// A rank's place in the health monitoring of its process. Thread safe.
class Seat {
 public:
  Seat() = default;
  ~Seat() { leave(); }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  /// Does nothing for a communicator of one rank, or where the settings want nothing of all this. Monitoring that
  /// cannot start is noted in the log. Once per seat; `subject` stays until leave() has returned.
  void take(const Newcomer& newcomer, Subject& subject);
  /// Nobody asks the subject any more. A dump that is due is written before.
  void leave();
  /// The communicator has failed: its flight recorder is dumped soon, if the settings say where. Never waits for that.
  void note_failure() noexcept;

 private:
  std::mutex mutex_;  // guards what follows
  Process* process_ = nullptr;
  CommunicatorId id_{};
  int rank_ = 0;
};

}  // namespace nitinol::ras
