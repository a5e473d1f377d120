// The answer to STATUS and VERBOSE STATUS in lines.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "diagnostics/ras/render.h"
#include "nccl.h"

namespace nitinol::ras {
namespace {

std::string counted(std::size_t count, const char* one, const char* many) {
  return formatted("{} {}", count, count == 1 ? one : many);
}

std::string running_for(const RankReport& report) {
  return report.milliseconds == 0 ? "" : formatted(" for {:.1f} s", static_cast<double>(report.milliseconds) / 1000);
}

std::string progress_text(const RankReport& report) {
  if (!report.progress_known) return formatted("issued {}", report.issued);
  return formatted("issued {}, begun {}, ended {}", report.issued, report.begun, report.ended);
}

/// "in AllReduce number 2 (...) for 1.5 s", "idle after ...".
std::string doing_text(const RankReport& report) {
  if (report.operation.empty())
    return report.progress_known ? "has not begun any collective" : "has issued no collective";
  if (!report.progress_known) return "has issued " + report.operation;
  if (!report.inside()) return "idle after " + report.operation;
  return (report.failure.empty() ? "in " : "was stopped in ") + report.operation + running_for(report);
}

/// Ranks for which the text is the same in one line.
std::string grouped(const Findings& findings, const std::vector<int>& ranks, std::string (*text)(const RankReport&)) {
  std::map<std::string, std::vector<int>> groups;
  for (const int rank : ranks) groups[text(*findings.ranks[static_cast<std::size_t>(rank)].report)].push_back(rank);
  std::string lines;
  for (const auto& [what, who] : groups) lines += formatted("    {}: {}\n", ranks_text(who), what);
  return lines;
}

std::vector<int> reported(const Findings& findings) {
  std::vector<int> ranks;
  for (const RankFinding& rank : findings.ranks) {
    if (rank.report != nullptr) ranks.push_back(rank.rank);
  }
  return ranks;
}

/// The rank that has been inside for longest speaks for the others.
const RankReport& spokesman(const Findings& findings) {
  const RankReport* longest = nullptr;
  for (const int rank : findings.inside) {
    const RankReport* report = findings.ranks[static_cast<std::size_t>(rank)].report;
    if (longest == nullptr || report->milliseconds > longest->milliseconds) longest = report;
  }
  return *longest;
}

std::string progress_lines(const Findings& findings) {
  const std::vector<int> ranks = reported(findings);
  if (ranks.empty()) return "";
  if (findings.calls_differ)
    return "  The ranks' calls do not match:\n" + grouped(findings, findings.inside, doing_text);
  if (findings.inside.empty() && findings.behind.empty()) {
    if (findings.furthest == 0) return "  No collective yet.\n";
    return formatted(
        "  {} {} all {} collectives.\n", ranks.size() == findings.ranks.size() ? "All ranks" : "These ranks",
        findings.ranks[static_cast<std::size_t>(ranks.front())].report->progress_known ? "have ended" : "have issued",
        findings.furthest);
  }
  std::string text;
  if (!findings.inside.empty()) {
    const RankReport& first = spokesman(findings);
    text = formatted("  {} {}{}: {}.\n", first.failure.empty() ? "In" : "Stopped in", first.operation,
                     running_for(first), ranks_text(findings.inside));
  } else {
    text = formatted("  The furthest rank has come to collective number {}.\n", findings.furthest);
  }
  if (!findings.behind.empty()) {
    text += "  Not there yet:\n" + grouped(findings, findings.behind, [](const RankReport& report) {
              return doing_text(report) + " (" + progress_text(report) + ")";
            });
  }
  return text;
}

std::string state_line(const Findings& findings) {
  std::map<std::string, std::vector<int>> states;
  for (const RankFinding& rank : findings.ranks) {
    if (rank.report != nullptr) states[rank.report->state].push_back(rank.rank);
  }
  std::string text;
  for (const auto& [state, ranks] : states) {
    if (!text.empty()) text += "; ";
    text += ranks.size() == findings.ranks.size() ? "all ranks" : ranks_text(ranks);
    text += " " + state;
  }
  return text.empty() ? "" : "  State: " + text + ".\n";
}

std::string name_text(const RankFinding& rank, const Roster& roster) {
  const Roster::Member& member = roster.members[static_cast<std::size_t>(rank.rank)];
  const ProcessName& process = roster.processes[member.process];
  return formatted("rank {} (host {}, pid {}, device {})", rank.rank, process.host_name, process.pid, member.device);
}

std::string communicator_text(const Findings& findings, bool verbose) {
  const Roster& roster = *findings.roster;
  std::set<std::uint64_t> hosts;
  for (const ProcessName& process : roster.processes) hosts.insert(process.host);
  std::string text = formatted(
      "\nCommunicator {}: {}, {}, {}{}\n", text_of(roster.id), counted(roster.members.size(), "rank", "ranks"),
      counted(roster.processes.size(), "process", "processes"), counted(hosts.size(), "host", "hosts"),
      findings.missing.empty() ? "" : formatted("; {} missing", findings.missing.size()));
  text += state_line(findings);
  for (const auto& [sentence, ranks] : findings.failures) {
    text += formatted("  Error on {}: {}\n", ranks_text(ranks), sentence);
  }
  for (const int rank : findings.missing) {
    const RankFinding& finding = findings.ranks[static_cast<std::size_t>(rank)];
    text += formatted("  Missing: {}: {}\n", name_text(finding, roster), finding.missing);
  }
  text += progress_lines(findings);
  if (!verbose) return text;
  for (const RankFinding& rank : findings.ranks) {
    if (rank.report == nullptr) continue;
    text += formatted("  {}: {}; {}; {}\n", name_text(rank, roster), rank.report->state, progress_text(*rank.report),
                      doing_text(*rank.report));
  }
  return text;
}

}  // namespace

std::string render_text(const Job& job, bool verbose) {
  const auto silent =
      std::count_if(job.processes.begin(), job.processes.end(), [](const auto& entry) { return !entry.second.report; });
  std::string text =
      formatted("Nitinol {}.{}.{}: asked of host {}, pid {}; {} of {} answered in {:.2f} s\n", NCCL_MAJOR, NCCL_MINOR,
                NCCL_PATCH, job.asked.host_name, job.asked.pid, job.processes.size() - static_cast<std::size_t>(silent),
                counted(job.processes.size(), "process", "processes"), job.seconds);
  for (const Findings& findings : find(job)) text += communicator_text(findings, verbose);
  return text;
}

std::string render_dumps_text(const Job& job) {
  std::string text;
  for (const RankDump& dump : job.dumps) {
    text += formatted("Communicator {} rank {}\n", text_of(dump.id), dump.rank) + dump.text + "\n";
  }
  for (const RankDump& dump : job.left_out) {
    text += formatted("Communicator {} rank {}: left out, the dumps are too long\n", text_of(dump.id), dump.rank);
  }
  return text;
}

}  // namespace nitinol::ras
