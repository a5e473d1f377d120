// Printing.
#include "report.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace nitinol::perf {
namespace {

constexpr double kSmall = 32 * 1024;
constexpr double kMedium = 4 * 1024 * 1024;

class LogMean {
 public:
  void add(double value) {
    sum_ += std::log(value);
    ++count_;
  }
  int count() const { return count_; }
  double value() const { return std::exp(sum_ / count_); }

 private:
  double sum_ = 0;
  int count_ = 0;
};

// Means over all sizes and over three classes of size.
struct Means {
  LogMean all;
  std::array<LogMean, 3> classes;

  void add(double bytes, double ratio) {
    all.add(ratio);
    classes.at(bytes <= kSmall ? 0 : bytes <= kMedium ? 1 : 2).add(ratio);
  }
};

std::string bytes_text(size_t bytes) {
  const std::array<const char*, 4> units{"", "K", "M", "G"};
  size_t unit = 0;
  while (unit + 1 < units.size() && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + units.at(unit);
}

std::string cell(const LogMean& mean) {
  char text[16] = "      -";
  if (mean.count() > 0) std::snprintf(text, sizeof text, "%7.2f", mean.value());
  return text;
}

void print_mean(const std::string& name, const Means& means) {
  std::printf("#   %-32s %s   up to 32K %s   to 4M %s   above %s\n", name.c_str(), cell(means.all).c_str(),
              cell(means.classes[0]).c_str(), cell(means.classes[1]).c_str(), cell(means.classes[2]).c_str());
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

double ratio_of(const Row& row) {
  return spread_of(row.libraries.at(1).microseconds).median / spread_of(row.libraries.at(0).microseconds).median;
}

Report::Report(const Session& session, std::vector<Place> places, std::string started)
    : session_(session),
      places_(std::move(places)),
      started_(std::move(started)),
      progress_(isatty(STDERR_FILENO) == 1) {}

void Report::initialised(const std::vector<double>& seconds) {
  init_seconds_ = seconds;
  print_header();
}

void Report::print_header() {
  const Options& o = session_.options();
  const Team& team = session_.team();
  std::printf("# %s\n", o.command_line.c_str());
  std::printf("# %d ranks = %d processes x %d threads x %d GPUs, started %s\n", team.ranks(), team.processes,
              team.threads, team.gpus, started_.c_str());
  for (const Place& place : places_) {
    std::printf("#   process %d on %s: %s\n", place.process, place.host.c_str(), place.devices.c_str());
  }
  for (size_t i = 0; i < session_.libraries().size(); ++i) {
    const Library& library = session_.libraries()[i];
    std::printf("# library %c: NCCL %s, %s; communicators up in %.1f ms\n", static_cast<char>('A' + i),
                library.version_text().c_str(), library.path().c_str(), init_seconds_[i] * 1e3);
  }
  std::printf(
      "# median, least and most of %d batches of up to %d iterations (%s), slowest rank; buffers registered: %s; %s\n",
      o.batches, o.iterations,
      o.graph       ? "one graph"
      : o.sync_each ? "each synchronised"
                    : "back to back",
      registration_name(o.registration), o.check ? "results checked" : "results NOT checked");
}

void Report::clear_progress() {
  if (progress_shown_) std::fputs("\r\033[K", stderr);
  progress_shown_ = false;
}

void Report::starting(const Case& what, size_t index, size_t total) {
  const std::string kind = traits_of(what.operation).name;
  if (kind != last_kind_) {
    clear_progress();
    std::printf("#\n#%-13s %8s %11s %8s %6s %4s %5s %10s %10s %10s %8s %8s %6s %5s", "operation", "size", "count",
                "type", "op", "root", "place", "time us", "least", "most", "algbw", "busbw", "wrong", "iter");
    std::printf(session_.libraries().size() > 1 ? " %10s %6s %7s\n" : "\n", "B us", "wrong", "B/A");
    std::fflush(stdout);
    last_kind_ = kind;
  }
  if (!progress_) return;
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  if (elapsed < 2) return;
  std::fprintf(stderr, "\r\033[K[%zu/%zu, %.0f s] %s %s %s", index + 1, total, elapsed, kind.c_str(), what.type->name,
               bytes_text(what.bytes(session_.team().ranks())).c_str());
  std::fflush(stderr);
  progress_shown_ = true;
}

void Report::row(const Row& row) {
  clear_progress();
  const Case& what = row.what;
  const int ranks = session_.team().ranks();
  const size_t bytes = what.bytes(ranks);
  const Spread time = spread_of(row.libraries[0].microseconds);
  const double gigabytes = static_cast<double>(bytes) / time.median / 1e3;
  const auto wrong = [](const Measurement& m) {
    return m.wrong < 0 ? std::string("-") : std::to_string(std::llround(m.wrong));
  };
  const std::string root = what.root < 0 ? "-" : std::to_string(what.root);
  std::printf(" %-13s %8s %11zu %8s %6s %4s %5s %10.2f %10.2f %10.2f %8.2f %8.2f %6s %5d",
              traits_of(what.operation).name, bytes_text(bytes).c_str(), what.count, what.type->name,
              what.reduction == Reduction::kNone ? "-" : reduction_name(what.reduction), root.c_str(),
              what.in_place ? "in" : "out", time.median, time.least, time.most, gigabytes,
              gigabytes * bus_factor(what.operation, ranks), wrong(row.libraries[0]).c_str(), row.iterations);
  if (row.libraries.size() > 1) {
    std::printf(" %10.2f %6s %7.2f", spread_of(row.libraries[1].microseconds).median, wrong(row.libraries[1]).c_str(),
                ratio_of(row));
  }
  std::printf("\n");
  std::fflush(stdout);
  rows_.push_back(row);
  write_json(false);
}

void Report::print_means() const {
  Means total;
  std::vector<std::pair<std::string, Means>> kinds;
  for (const Row& row : rows_) {
    if (row.what.count == 0) continue;
    std::string name = std::string(traits_of(row.what.operation).name) + " " + row.what.type->name;
    if (row.what.reduction != Reduction::kNone) name += std::string(" ") + reduction_name(row.what.reduction);
    if (kinds.empty() || kinds.back().first != name) kinds.emplace_back(name, Means{});
    const double bytes = static_cast<double>(row.what.bytes(session_.team().ranks()));
    kinds.back().second.add(bytes, ratio_of(row));
    total.add(bytes, ratio_of(row));
  }
  std::printf("#\n# geometric means of B/A (above 1: A is faster)\n");
  for (const auto& [name, means] : kinds) print_mean(name, means);
  if (kinds.size() > 1) print_mean("all", total);
}

void Report::finish() {
  clear_progress();
  if (session_.libraries().size() > 1) print_means();
  double wrong = 0;
  for (const Row& row : rows_) {
    for (const Measurement& m : row.libraries) wrong += std::max(0.0, m.wrong);
  }
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  const char* verdict = !session_.options().check ? "results not checked"
                        : wrong > 0               ? "WRONG RESULTS"
                                                  : "all results right";
  std::printf("#\n# %zu rows in %.1f s; %s\n", rows_.size(), elapsed, verdict);
  write_json(true);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw PerfError("cannot write the table to standard output");
}

}  // namespace nitinol::perf
