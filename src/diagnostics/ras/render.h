// A job's health for people and for programs.
#pragma once

#include <string>

#include "diagnostics/ras/report.h"

namespace nitinol::ras {

/// What is to be said of one rank of a communicator.
struct RankFinding {
  int rank = 0;
  const JobProcess* process = nullptr;
  const RankReport* report = nullptr;  ///< null: it is missing
  std::string missing;                 ///< why: "its process is dead (connection refused)" ...
};

/// What is to be said of one communicator.
struct Findings {
  const Roster* roster = nullptr;
  std::vector<RankFinding> ranks;  ///< by rank
  std::vector<int> missing;        ///< ranks without a report
  std::vector<int> inside;         ///< ranks that are in the collective that the furthest rank has begun
  std::vector<int> behind;         ///< ranks that have not come to it
  bool calls_differ = false;       ///< ranks are in different calls of the same number
  std::uint64_t furthest = 0;      ///< number of the last collective that any rank has begun
  std::map<std::string, std::vector<int>> failures;  ///< sentences, and which ranks report them
};

std::vector<Findings> find(const Job& job);
/// No rank is missing, no communicator has failed, and no calls differ.
bool healthy(const Findings& findings);

/// "rank 1", "ranks 0-3, 7".
std::string ranks_text(const std::vector<int>& ranks);

/// Lines for people; `verbose` has one for every rank.
std::string render_text(const Job& job, bool verbose);
/// One JSON object, always with everything.
std::string render_json(const Job& job);
/// {"dumps": [{"communicator": ..., "rank": ..., "text": ...}]} with what the job's ranks dumped.
std::string render_dumps_json(const Job& job);
/// The same dumps one after the other.
std::string render_dumps_text(const Job& job);

}  // namespace nitinol::ras
