// How far one rank's GPU has come with the calls that the rank has issued. Any thread may ask; the one that looks
// (late_watch.h) finds it out, since CUDA may take long to answer.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "device/event.h"
#include "executor/cuda/domain.h"
#include "executor/launch_times.h"

namespace nitinol::cuda {

class GpuProgress {
 public:
  /// `looked_after`: there is a thread that calls find() now and then.
  GpuProgress(const Domain& domain, bool looked_after);
  GpuProgress(const GpuProgress&) = delete;
  GpuProgress& operator=(const GpuProgress&) = delete;

  /// Around every launch that is not captured, in their order.
  void begin_launch(cudaStream_t stream) {
    if (times_) times_->begin(stream);
  }
  void end_launch(cudaStream_t stream) {
    if (times_) times_->end(stream);
  }
  bool wants_mark() const { return wants_mark_.load(std::memory_order_relaxed); }
  /// Before a launch in the stream, which has so many collectives before it.
  void mark(uint64_t behind, cudaStream_t stream);

  /// Any thread: of the calls that have been issued on the board. Waits a moment for the looking thread, and makes do
  /// with older news if that does not come.
  std::optional<Executor::Progress> progress(const CallBoard* board);
  /// The same, but older news will not do.
  Executor::Passed passed();
  /// Nobody waits for the looking thread any more.
  void stop() { looked_after_ = false; }

  // By the looking thread:
  /// Answers whoever has asked.
  void find(const CallBoard* board);
  void want_mark() { wants_mark_.store(true, std::memory_order_relaxed); }
  /// What is told from now on is how far it has come by now: something is reported, which ends what runs.
  void freeze() { frozen_ = passed_now(); }
  /// Whether all that was issued has come to its end.
  bool idle() const { return domain_.setup().idle && domain_.setup().idle(); }

 private:
  /// An event in a stream behind so many collectives.
  struct Mark {
    Event event;
    uint64_t behind = 0;
    bool taken = false;
    bool recorded = false;
  };
  bool ask();
  Executor::Passed passed_now() const;
  Mark* take_mark();
  void collect_marks();
  void note_passed(Mark& mark, uint64_t behind);
  uint64_t issued(const CallBoard* board) const { return board == nullptr ? 0 : board->page(rank_).calls.last(); }

  const Domain& domain_;
  const int rank_;
  std::unique_ptr<LaunchTimes> times_;  ///< where they are recorded
  std::atomic<bool> looked_after_;
  std::atomic<bool> wants_mark_{true};  ///< somebody has looked since the last

  std::mutex mutex_;  // of what follows
  static constexpr size_t kMarks = 4;
  std::array<Mark, kMarks> marks_;
  uint64_t ended_ = 0;       ///< collectives that are known to be through
  Executor::Passed passed_;  ///< as it was last found out

  // How often was asked and answered.
  std::atomic<uint64_t> asked_{0};
  std::atomic<uint64_t> answered_{0};

  // Of the looking thread.
  uint64_t begun_ = 0;                                   ///< the last collective that it has seen issued,
  std::chrono::steady_clock::time_point begun_since_{};  ///< and when it saw that first
  std::optional<Executor::Passed> frozen_;
};

}  // namespace nitinol::cuda
