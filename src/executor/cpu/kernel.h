// A launch as it is put into a stream: everything its operations need, however often a graph runs them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "executor/cpu/messages.h"
#include "executor/cpu/primitives.h"
#include "executor/cpu/rank.h"

namespace nitinol::cpu {

class Kernel;

/// A rank with what its kernels share. Lives as long as the executor and every kernel in a stream or graph: each kernel
/// holds it, spare ones too, so that launching takes no reference. close() lets the spare ones go.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  explicit Engine(ExecutorSetup setup) : rank_(std::move(setup)), workspace_(rank_.ranks()) {
    spares_.reserve(kMostSpares);  // so that giving one back takes no memory
  }

  Rank& rank() { return rank_; }
  Workspace& workspace() { return workspace_; }

  /// A kernel for the launch, which is to run in the streams, if those are known: used again after recycle(), which any
  /// thread may call. One thread at a time, before close().
  std::unique_ptr<Kernel> make_kernel(const Launch& launch, const LaunchStreams& streams = {});
  static void recycle(std::unique_ptr<Kernel> kernel);
  /// The executor's end: closes the rank; whoever owns the engine calls it before letting go.
  void close();

 private:
  static constexpr size_t kMostSpares = 64;

  std::unique_ptr<Kernel> take_spare();

  Rank rank_;
  Workspace workspace_;
  std::atomic<Kernel*> spare_{nullptr};  ///< one of the spares, owned, or g_no_more
  std::mutex spares_mutex_;
  std::vector<std::unique_ptr<Kernel>> spares_;  ///< the others
  bool closed_ = false;                          ///< under spares_mutex_
};

class Kernel {
 public:
  /// Runs the operations; returns when this rank's part is done, or soon after an abort. Not from two threads at a
  /// time.
  void run();
  const std::shared_ptr<Engine>& engine() const { return engine_; }

 private:
  friend class Engine;

  void run_operations(Rank& rank);

  std::shared_ptr<Engine> engine_;
  LaunchStreams streams_;
  std::vector<CollectiveWork> collectives_;
  Messages messages_;
};

}  // namespace nitinol::cpu
