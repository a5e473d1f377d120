// What health monitoring knows, as plain values: what a process tells of its ranks, and what has been heard of a job.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/process_state.h"
#include "bootstrap/secret.h"

namespace nitinol::ras {

/// Names a communicator on all its ranks.
using CommunicatorId = KeyId;

/// States that a rank may be in before all others have taken their seats.
inline constexpr const char* kInitialising = "initialising";
inline constexpr const char* kAborted = "aborted";

/// One rank of one communicator, as its own process tells it.
struct RankReport {
  int rank = 0;
  std::string state;         ///< "ready", "failed", "finalized" ...
  std::string failure;       ///< sentence of the first failure; empty: none
  std::uint64_t issued = 0;  ///< collectives put into streams, begun and ended, each counted from 1
  std::uint64_t begun = 0;
  std::uint64_t ended = 0;
  bool progress_known = false;     ///< whether begun and ended mean anything
  std::string operation;           ///< the last collective that has begun, or was issued where that is not known
  std::uint64_t milliseconds = 0;  ///< for how long it has been running, if it has not ended and that is known
  friend bool operator==(const RankReport&, const RankReport&) = default;
  /// Then all have had a seat: ranks wait for each other before one of them is.
  bool has_been_ready() const { return state != kInitialising && state != kAborted; }
  bool inside() const { return progress_known && begun > ended; }
};

struct ProcessName {
  std::uint64_t number = 0;  ///< drawn at random by the process
  std::uint64_t host = 0;    ///< identity of the host
  std::string host_name;
  int pid = 0;
  friend bool operator==(const ProcessName&, const ProcessName&) = default;
};

/// Who belongs to a communicator.
struct Roster {
  struct Member {
    std::uint32_t process = 0;  ///< index into `processes`
    int device = 0;
    friend bool operator==(const Member&, const Member&) = default;
  };
  CommunicatorId id{};
  std::vector<ProcessName> processes;
  std::vector<Member> members;  ///< by rank
  friend bool operator==(const Roster&, const Roster&) = default;
};

/// What a process sees of another one of its host; one that cannot be seen has none.
struct Sighting {
  std::uint64_t process = 0;
  ProcessState state = ProcessState::kRunning;
  friend bool operator==(const Sighting&, const Sighting&) = default;
};

struct RanksOf {
  CommunicatorId id{};
  std::vector<RankReport> ranks;
  friend bool operator==(const RanksOf&, const RanksOf&) = default;
};

/// What one process tells.
struct ProcessReport {
  ProcessName name;
  std::vector<RanksOf> communicators;
  std::vector<Roster> rosters;  ///< of communicators that the asker does not know yet
  std::vector<Sighting> sightings;
  friend bool operator==(const ProcessReport&, const ProcessReport&) = default;
};

/// A rank's flight recorder.
struct RankDump {
  CommunicatorId id{};
  int rank = 0;
  std::string text;
  friend bool operator==(const RankDump&, const RankDump&) = default;
};

/// What has been heard of one process of the job.
struct JobProcess {
  ProcessName name;
  std::optional<ProcessReport> report;
  std::string trouble;  ///< why there is no report
  /// As somebody on its host sees it; dead, too, if nobody does and it has been silent for too long.
  ProcessState state = ProcessState::kUnknown;
  bool hung_up = false;  ///< where it listens somebody does, who did not answer
};

/// The whole job, as one process could find out.
struct Job {
  ProcessName asked;
  double seconds = 0;  ///< that the answers took
  std::map<std::uint64_t, JobProcess> processes;
  std::map<CommunicatorId, Roster> communicators;
  std::vector<RankDump> dumps;
  std::size_t dump_bytes = 0;      ///< of these together
  std::vector<RankDump> left_out;  ///< dumps that are too long, and those for which there is no room: without texts

  /// Those that are to be no more than so many bytes together; one without a text was too long where it comes from.
  void take(std::vector<RankDump> more, std::size_t most_bytes);
};

/// "3f2a91bc0d4e..."
std::string text_of(const CommunicatorId& id);

}  // namespace nitinol::ras
