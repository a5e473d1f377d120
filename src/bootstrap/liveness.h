// What the failure watch tells: once a communicator is built, one thread per process watches the connections to the
// tree neighbours. The first failure is passed on from neighbour to neighbour, so that every rank learns the first
// cause.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "nccl.h"

namespace nitinol {

/// How a rank comes to be missing.
enum class Parting : std::uint8_t {
  kFailed,    ///< it, or another, says what went wrong
  kLost,      ///< its process has died or its connection was closed, and nobody says why
  kDeparted,  ///< it has left of its own will: by an abort, or as its process has exited
};

struct Failure {
  int rank = -1;                          // the rank that failed, in the communicator's numbering; -1: not one rank's
  ncclResult_t result = ncclRemoteError;  // what every other rank is to report
  std::string sentence;                   // what happened: "rank 3 (host h, pid p) exited or closed its connection"
  Parting parting = Parting::kFailed;
};

/// Called at most once, usually on the watching thread: of a rank that is lost or has departed a little later, so
/// that what others still do with what it had sent them ends well. It must not block, must not throw, and must
/// not call shutdown() or destroy the Bootstrap: it notes the failure and wakes whoever waits.
using FailureCallback = std::function<void(const Failure&)>;

/// Of those that are lost or have departed, the one that this rank needs now; null: none. Asked on the watching thread,
/// again and again until there is one. The same holds for it, but that it may throw: then it is the first.
using NeedsOthers = std::function<const Failure*(std::span<const Failure> gone)>;

/// What another rank does, as far as that can be seen, for whoever waits for it in vain.
struct DoingsOfRank {
  std::string text;      ///< "" if it is not known
  bool stopped = false;  ///< it makes no more calls
};
using DoingsOf = std::function<DoingsOfRank(int rank)>;

/// The ranks whose process is stopped, for sentences; "" if none is known to be.
using WhoIsStopped = std::function<std::string()>;

}  // namespace nitinol
