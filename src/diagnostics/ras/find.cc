// What a job's reports mean.
#include <algorithm>

#include "base/error.h"
#include "diagnostics/ras/render.h"

namespace nitinol::ras {
namespace {

const RankReport* report_of(const JobProcess& process, const CommunicatorId& id, int rank) {
  if (!process.report) return nullptr;
  for (const RanksOf& ranks : process.report->communicators) {
    if (ranks.id != id) continue;
    for (const RankReport& report : ranks.ranks) {
      if (report.rank == rank) return &report;
    }
  }
  return nullptr;
}

/// `all_were_there`: each rank has had its seat.
std::string why_missing(const JobProcess& process, bool all_were_there) {
  if (process.report) {
    return all_were_there ? "its process is alive but has left the communicator (destroyed or aborted it)"
                          : "its process is alive but is not in the communicator yet, or has left it already";
  }
  const std::string detail = process.trouble.empty() ? "" : " (" + process.trouble + ")";
  switch (process.state) {
    case ProcessState::kRunning: return "its process is alive, but does not answer" + detail;
    case ProcessState::kStopped:
    case ProcessState::kDead: return words_for(process.state) + detail;
    case ProcessState::kUnknown: break;
  }
  return "its process does not answer" + detail;
}

/// With who reports, and who does not.
void add_ranks(Findings& findings, const Job& job) {
  const Roster& roster = *findings.roster;
  for (std::size_t i = 0; i < roster.members.size(); ++i) {
    RankFinding& rank = findings.ranks.emplace_back();
    rank.rank = static_cast<int>(i);
    const auto process = job.processes.find(roster.processes[roster.members[i].process].number);
    if (process == job.processes.end()) continue;
    rank.process = &process->second;
    rank.report = report_of(process->second, roster.id, rank.rank);
  }
}

void explain_missing(Findings& findings) {
  const bool all_were_there = std::any_of(findings.ranks.begin(), findings.ranks.end(), [](const RankFinding& rank) {
    return rank.report != nullptr && rank.report->has_been_ready();
  });
  for (RankFinding& rank : findings.ranks) {
    if (rank.report != nullptr) continue;
    rank.missing = rank.process == nullptr ? "its process was not asked" : why_missing(*rank.process, all_were_there);
    findings.missing.push_back(rank.rank);
  }
}

std::uint64_t begun(const RankReport& report) { return report.progress_known ? report.begun : report.issued; }

void compare_progress(Findings& findings) {
  for (const RankFinding& rank : findings.ranks) {
    if (rank.report != nullptr) findings.furthest = std::max(findings.furthest, begun(*rank.report));
  }
  const std::string* call = nullptr;
  for (const RankFinding& rank : findings.ranks) {
    if (rank.report == nullptr) continue;
    if (begun(*rank.report) < findings.furthest) {
      findings.behind.push_back(rank.rank);
    } else if (rank.report->inside()) {
      findings.inside.push_back(rank.rank);
      if (rank.report->operation.empty()) continue;  // it was just being noted
      if (call != nullptr && *call != rank.report->operation) findings.calls_differ = true;
      call = &rank.report->operation;
    }
  }
}

}  // namespace

std::vector<Findings> find(const Job& job) {
  std::vector<Findings> all;
  for (const auto& [id, roster] : job.communicators) {
    Findings& findings = all.emplace_back();
    findings.roster = &roster;
    add_ranks(findings, job);
    explain_missing(findings);
    for (const RankFinding& rank : findings.ranks) {
      if (rank.report == nullptr || rank.report->failure.empty()) continue;
      findings.failures[rank.report->failure].push_back(rank.rank);
    }
    compare_progress(findings);
  }
  return all;
}

bool healthy(const Findings& findings) {
  return findings.missing.empty() && findings.failures.empty() && !findings.calls_differ;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += formatted("{}", ranks[i]);
    if (last > i) text += formatted("{}{}", last == i + 1 ? ", " : "-", ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace nitinol::ras
