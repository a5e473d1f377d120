// What the threads of one process share: options, libraries, who they are in the team, and how they meet.
#pragma once

#include <barrier>
#include <string>
#include <vector>

#include "channel.h"
#include "library.h"
#include "options.h"
#include "pattern.h"
#include "watchdog.h"

namespace nitinol::perf {

/// Ranks are numbered process by process, thread by thread, GPU by GPU.
struct Team {
  int process = 0;
  int processes = 1;
  int local_process = 0;  // among the processes on this host
  int hosts = 1;
  int threads = 1;
  int gpus = 1;
  int devices = 1;  // that this process sees

  int ranks() const { return processes * threads * gpus; }
  int rank(int thread, int gpu) const { return (process * threads + thread) * gpus + gpu; }
  int device(int thread, int gpu) const { return ((local_process * threads + thread) * gpus + gpu) % devices; }
};

/// One thing to measure.
struct Case {
  Operation operation;
  const ElementType* type;
  Reduction reduction;
  int root;  // -1: none
  size_t count;
  bool in_place;

  /// The larger of the two buffers, as the size column shows it.
  size_t bytes(int ranks) const { return layout_of(operation, count, 0, ranks).larger() * type->size; }
};

/// All cases in the order of the table; the same in every process.
std::vector<Case> cases_of(const Options& options, int ranks);

class Session {
 public:
  Session(const Options& options, const Team& team, Channel channel, std::vector<Library> libraries);

  const Options& options() const { return options_; }
  const Team& team() const { return team_; }
  const std::vector<Library>& libraries() const { return libraries_; }
  const std::vector<ncclUniqueId>& ids() const { return ids_; }  // one per library
  PatternStore& patterns() { return patterns_; }
  Watchdog& watchdog() { return watchdog_; }
  Channel& channel() { return channel_; }

  /// Waits for the threads of this process.
  void meet() { barrier_.arrive_and_wait(); }

  /// Waits for those of all processes.
  void meet_everywhere(int thread) { merge(thread, {0}, true); }

  /// Element-wise over all threads of all processes; every thread calls and gets the result.
  std::vector<double> max(int thread, std::vector<double> mine) { return merge(thread, std::move(mine), true); }
  std::vector<double> sum(int thread, std::vector<double> mine) { return merge(thread, std::move(mine), false); }

 private:
  std::vector<double> merge(int thread, std::vector<double> mine, bool take_max);

  const Options& options_;
  Team team_;
  Channel channel_;
  std::vector<Library> libraries_;
  std::vector<ncclUniqueId> ids_;
  PatternStore patterns_;
  Watchdog watchdog_;
  std::barrier<> barrier_;
  std::vector<std::vector<double>> slots_;
  std::vector<double> merged_;
};

}  // namespace nitinol::perf
