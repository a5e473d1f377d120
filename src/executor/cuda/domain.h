// The memory of a communicator's ranks as one of them reaches it: queue sets, mapped when first needed, and the signals
// between its host and its kernels. Kernels use it, so it lives as long as the executor and every graph with its
// launches.
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/cuda/parameters.h"
#include "executor/cuda/sizes.h"
#include "executor/executor.h"

namespace nitinol::cuda {

class LeftGraphs;

/// Pinned host memory that kernels see too.
class HostWords {
 public:
  explicit HostWords(size_t count);
  ~HostWords();
  HostWords(const HostWords&) = delete;
  HostWords& operator=(const HostWords&) = delete;
  uint32_t* get() const { return words_; }

 private:
  uint32_t* words_ = nullptr;
};

/// Whether all ranks' GPUs read and write each other's memory, and may.
bool reaches_peers(const ExecutorSetup& setup);

/// A rank does not find in another's memory what it wrote there.
class NotReached : public Error {
 public:
  NotReached(int rank, int peer);
};

class Domain {
 public:
  /// Offers this rank's memory to the others. Call on the rank's device.
  Domain(ExecutorSetup setup, const Layouts& layouts);
  /// No kernel uses it any more.
  ~Domain();

  /// Offers nothing any more; what peers have mapped stays.
  void close();
  /// Graphs may run on although nobody looks at what they wait for, for `timeout` (0: for ever). Throws Error.
  void look_after_graphs(std::chrono::milliseconds timeout);

  /// Maps the region of every rank for one queue set; of one that is gone, memory in its place. Throws Error if one
  /// cannot be mapped.
  void reach(Queue queue);
  /// The same, and writes and reads there: throws NotReached if one does not hold what was written. Waits for the GPU,
  /// also for other ranks' kernels on it: CUDA may have a new stream wait for what was to be done in one that the
  /// program has destroyed.
  void reach_and_probe(Queue queue);
  bool reached(Queue queue) const { return views_[static_cast<size_t>(queue)] != nullptr; }
  bool misses(Queue queue, int rank) const { return missed_.count({queue, rank}) != 0; }
  /// Throws Error(ncclRemoteError) if the rank was gone when the queue set was mapped: nothing is to be sent to it.
  void must_not_miss(Queue queue, int rank) const;
  const QueueView& view(Queue queue) const;
  const QueueLayout& layout(Queue queue) const { return layouts_[static_cast<size_t>(queue)]; }
  /// Bytes of the messages that are on the way from one rank to another at most: larger ones wait for their receiver.
  size_t room_for_messages() const;
  /// The communicator's call board, which its first rank made. Throws Error.
  const CallBoard* reach_board();

  volatile Signals& signals() const { return *reinterpret_cast<volatile Signals*>(words_.get()); }
  /// What this rank's kernels note of what has run, by RunLines; null: they do not, as nobody looks.
  RunNotes* runs() const;
  const ExecutorSetup& setup() const { return setup_; }
  int ranks() const { return static_cast<int>(setup_.peers.size()); }
  int device() const { return device_; }

 private:
  p2p::Place place() const { return reaches_peers(setup_) ? p2p::Place::kDevice : p2p::Place::kHost; }
  void make_board();
  std::shared_ptr<p2p::Region> region_of(int rank, Queue queue);
  std::shared_ptr<p2p::Region> region_unless_gone(int rank, Queue queue);
  void stand_in_for_gone(QueueView& view);
  char* counters_of(Queue queue);
  void map_all(Queue queue, bool probes);
  void check_reached(const QueueView& view);
  RunNotes* runs_of(Queue queue) const;
  void tell_kernels_of_counters(size_t queue, const QueueView& view);

  ExecutorSetup setup_;
  Layouts layouts_;
  int device_;
  HostWords words_;  ///< Signals, then an answer of the probe for each rank, then RunNotes
  std::shared_ptr<Arena> arena_;
  std::vector<std::shared_ptr<p2p::Region>> regions_;
  std::map<std::pair<Queue, int>, std::string> missed_;  ///< ranks that other memory stands in for, and why
  std::unique_ptr<p2p::Region> counters_;                ///< of all queue sets, where regions lie in host memory
  std::array<std::unique_ptr<QueueView>, kQueues> views_;
  std::shared_ptr<const CallBoard> board_;
  bool open_ = true;
  std::unique_ptr<LeftGraphs> left_graphs_;  ///< looks at all of this, from another thread
};

/// Reaches what a launch needs. Where ranks share GPUs, others' kernels may run that wait for this rank: nothing is
/// probed then.
void reach_for_use(Domain& domain, Queue queue, bool ranks_share_gpus);

}  // namespace nitinol::cuda
