// Graphs that outlive their communicator: what keeps them from coming to an end is told in the log, and they are ended.
// There is nobody else who could fail.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "executor/call_names.h"
#include "executor/cuda/kernel_wait_reader.h"
#include "executor/cuda/late_ranks.h"
#include "executor/dead_peers.h"

namespace nitinol::cuda {

class Domain;

class LeftGraphs {
 public:
  /// Looks from now on, on the thread of late_watch.h. The domain outlives it. `timeout`: how long they may wait for a
  /// rank; 0: for ever.
  LeftGraphs(Domain& domain, std::chrono::milliseconds timeout);
  /// As stop_watching().
  ~LeftGraphs();
  LeftGraphs(const LeftGraphs&) = delete;
  LeftGraphs& operator=(const LeftGraphs&) = delete;

 private:
  void look();
  /// What there is to tell: a rank has come too late for the limit of time, or one that is waited for is dead.
  std::optional<std::string> find_trouble();
  std::optional<std::string> find_dead();

  Domain& domain_;
  CallNames no_names_;
  KernelWaitReader waits_;
  LateRanks late_ranks_;
  DeadPeers dead_peers_;
  uint64_t watch_;
};

}  // namespace nitinol::cuda
