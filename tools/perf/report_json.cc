// The JSON file: everything the table says and each batch's time.
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "report.h"

namespace nitinol::perf {
namespace {

nlohmann::ordered_json describe(const Measurement& m, const Row& row, int ranks) {
  const Spread time = spread_of(m.microseconds);
  const double gigabytes = static_cast<double>(row.what.bytes(ranks)) / time.median / 1e3;
  nlohmann::ordered_json result{
      {"time_us", time.median}, {"least_us", time.least},
      {"most_us", time.most},   {"batches_us", m.microseconds},
      {"algbw_gbs", gigabytes}, {"busbw_gbs", gigabytes * bus_factor(row.what.operation, ranks)},
  };
  if (m.wrong >= 0) result["wrong"] = static_cast<long long>(m.wrong);
  return result;
}

nlohmann::ordered_json describe(const Row& row, int ranks) {
  const Case& what = row.what;
  nlohmann::ordered_json result{
      {"operation", traits_of(what.operation).name},
      {"bytes", what.bytes(ranks)},
      {"count", what.count},
      {"type", what.type->name},
      {"place", what.in_place ? "in" : "out"},
      {"iterations", row.iterations},
  };
  if (what.reduction != Reduction::kNone) result["op"] = reduction_name(what.reduction);
  if (what.root >= 0) result["root"] = what.root;
  for (const Measurement& m : row.libraries) result["libraries"].push_back(describe(m, row, ranks));
  if (row.libraries.size() > 1) result["ratio"] = ratio_of(row);
  return result;
}

bool write_at(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return std::fclose(file) == 0 && written;
}

/// So that whoever reads it meanwhile, or ends here, finds all of it. Not what is no file of this folder's own.
bool write_aside(const std::string& path, const std::string& text) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, unknown))) return false;
  const std::string aside = path + ".part";
  if (write_at(aside, text) && std::rename(aside.c_str(), path.c_str()) == 0) return true;
  static_cast<void>(std::remove(aside.c_str()));
  return false;
}

}  // namespace

void Report::write_json(bool complete) const {
  const Options& o = session_.options();
  if (o.json.empty()) return;
  const Team& team = session_.team();
  nlohmann::ordered_json root{
      {"tool", "nitinol-perf"},
      {"started", started_},
      {"command", o.command_line},
      {"ranks", team.ranks()},
      {"processes", team.processes},
      {"threads", team.threads},
      {"gpus_per_thread", team.gpus},
      {"mode", o.graph       ? "graph"
               : o.sync_each ? "sync"
                             : "eager"},
      {"registration", registration_name(o.registration)},
      {"batches", o.batches},
      {"iterations", o.iterations},
      {"checked", o.check},
      {"complete", complete},
  };
  for (const Place& place : places_) {
    root["places"].push_back({{"process", place.process}, {"host", place.host}, {"devices", place.devices}});
  }
  for (size_t i = 0; i < session_.libraries().size(); ++i) {
    const Library& library = session_.libraries()[i];
    root["libraries"].push_back(
        {{"path", library.path()}, {"version", library.version_text()}, {"init_ms", init_seconds_[i] * 1e3}});
  }
  for (const Row& row : rows_) root["rows"].push_back(describe(row, team.ranks()));
  // Names of files and hosts may hold any bytes.
  const std::string text = root.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (write_aside(o.json, text) || !complete) return;
  if (!write_at(o.json, text)) throw PerfError("cannot write '" + o.json + "'");
}

}  // namespace nitinol::perf
