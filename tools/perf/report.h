// The table for people and the JSON for programs.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "measure.h"

namespace nitinol::perf {

struct Spread {
  double median = 0;
  double least = 0;
  double most = 0;
};
Spread spread_of(std::vector<double> values);

/// Ratio of the second library's time to the first's; above 1 the first is faster.
double ratio_of(const Row& row);

struct Place {
  std::string host;
  int process;
  std::string devices;  // "0-3 NVIDIA H200"
};

class Report : public RowSink {
 public:
  Report(const Session& session, std::vector<Place> places, std::string started);

  void initialised(const std::vector<double>& seconds) override;
  void starting(const Case& what, size_t index, size_t total) override;
  void row(const Row& row) override;

  /// Geometric means and the verdict; completes the JSON file.
  void finish();

 private:
  void print_header();
  void print_means() const;
  void clear_progress();
  /// What there is so far, as far as it can be put in the place of what there was in one step; all, once it is
  /// complete.
  void write_json(bool complete) const;

  const Session& session_;
  std::vector<Place> places_;
  std::string started_;
  std::vector<double> init_seconds_;
  std::vector<Row> rows_;
  bool progress_;  // stderr is a terminal
  bool progress_shown_ = false;
  std::string last_kind_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace nitinol::perf
