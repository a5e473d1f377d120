// The same for programs.
#include <nlohmann/json.hpp>

#include "diagnostics/ras/render.h"
#include "nccl.h"

namespace nitinol::ras {
namespace {

using Json = nlohmann::ordered_json;

// Names may hold any bytes: what is no UTF-8 is replaced.
std::string dumped(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

const char* word_for(ProcessState state) {
  switch (state) {
    case ProcessState::kRunning: return "alive";
    case ProcessState::kStopped: return "stopped";
    case ProcessState::kDead: return "dead";
    case ProcessState::kUnknown: return "unknown";
  }
  return "";
}

Json process_json(const JobProcess& process) {
  Json json = {{"host", process.name.host_name}, {"pid", process.name.pid}, {"answered", process.report.has_value()}};
  if (process.report) return json;
  json["state"] = word_for(process.state);
  json["reason"] = process.trouble;
  return json;
}

Json rank_json(const RankFinding& rank, const Roster& roster) {
  const Roster::Member& member = roster.members[static_cast<std::size_t>(rank.rank)];
  const ProcessName& process = roster.processes[member.process];
  Json json = {{"rank", rank.rank}, {"host", process.host_name}, {"pid", process.pid}, {"device", member.device}};
  if (rank.report == nullptr) {
    json["missing"] = rank.missing;
    return json;
  }
  json["state"] = rank.report->state;
  json["error"] = rank.report->failure;
  json["issued"] = rank.report->issued;
  if (rank.report->progress_known) {
    json["begun"] = rank.report->begun;
    json["ended"] = rank.report->ended;
  }
  json["operation"] = rank.report->operation;
  json["running_ms"] = rank.report->milliseconds;
  return json;
}

Json communicator_json(const Findings& findings) {
  Json ranks = Json::array();
  for (const RankFinding& rank : findings.ranks) ranks.push_back(rank_json(rank, *findings.roster));
  Json errors = Json::array();
  for (const auto& [sentence, who] : findings.failures) errors.push_back({{"sentence", sentence}, {"ranks", who}});
  return {{"communicator", text_of(findings.roster->id)},
          {"size", findings.ranks.size()},
          {"healthy", healthy(findings)},
          {"missing", findings.missing},
          {"furthest", findings.furthest},
          {"inside", findings.inside},
          {"behind", findings.behind},
          {"calls_differ", findings.calls_differ},
          {"errors", std::move(errors)},
          {"ranks", std::move(ranks)}};
}

}  // namespace

std::string render_json(const Job& job) {
  bool all_healthy = true;
  Json communicators = Json::array();
  for (const Findings& findings : find(job)) {
    all_healthy = all_healthy && healthy(findings);
    communicators.push_back(communicator_json(findings));
  }
  Json processes = Json::array();
  for (const auto& [number, process] : job.processes) processes.push_back(process_json(process));
  const Json json = {{"nitinol", NCCL_VERSION_CODE},
                     {"asked", {{"host", job.asked.host_name}, {"pid", job.asked.pid}}},
                     {"seconds", job.seconds},
                     {"healthy", all_healthy},
                     {"processes", std::move(processes)},
                     {"communicators", std::move(communicators)}};
  return dumped(json, 1);
}

std::string render_dumps_json(const Job& job) {
  Json dumps = Json::array();
  for (const RankDump& dump : job.dumps) {
    dumps.push_back({{"communicator", text_of(dump.id)}, {"rank", dump.rank}, {"text", dump.text}});
  }
  Json left_out = Json::array();
  for (const RankDump& dump : job.left_out) {
    left_out.push_back({{"communicator", text_of(dump.id)}, {"rank", dump.rank}});
  }
  Json silent = Json::array();
  for (const auto& [number, process] : job.processes) {
    if (!process.report) silent.push_back(process_json(process));
  }
  return dumped({{"dumps", std::move(dumps)}, {"left_out", std::move(left_out)}, {"silent", std::move(silent)}}, -1);
}

}  // namespace nitinol::ras
