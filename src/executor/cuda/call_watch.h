// One rank's part in finding out what goes wrong between ranks: it writes its calls on the call board, and a thread of
// the process (late_watch.h) looks now and then whether they match the others', whether any of them never comes, and
// whether kernels have waited too long (late_ranks.h).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "executor/call_check.h"
#include "executor/call_waits.h"
#include "executor/collective_waits.h"
#include "executor/cuda/domain.h"
#include "executor/cuda/gpu_progress.h"
#include "executor/cuda/kernel_wait_reader.h"
#include "executor/cuda/late_ranks.h"
#include "executor/dead_peers.h"
#include "executor/long_circle.h"
#include "executor/marked_calls.h"
#include "executor/raised_flag.h"
#include "executor/stream_places.h"

namespace nitinol::cuda {

class CallWatch {
 public:
  /// Starts looking if there is anybody to look at.
  explicit CallWatch(std::shared_ptr<Domain> domain);
  ~CallWatch() { stop(); }
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  /// As Executor::meet().
  bool meet();
  /// Before a launch: who has none is not interested in what the others call.
  void prepare() {
    if (!calls_.load(std::memory_order_relaxed)) calls_.store(true, std::memory_order_relaxed);
  }
  /// What this rank is about to note, when that may take long: until then it may have to wait for kernels that wait for
  /// others. While the flag lives the others know that this rank is busy setting something up, and their kernels have
  /// patience.
  [[nodiscard]] RaisedFlag announce(const Launch& launch, cudaStream_t stream);
  /// Around every launch that is not captured, in their order.
  void begin_launch(cudaStream_t stream) { progress_.begin_launch(stream); }
  void end_launch(cudaStream_t stream) { progress_.end_launch(stream); }
  /// Whether launches need names: not before anything was captured, nor if nobody looks.
  bool wants_names(bool captured) {
    if (captured && !captured_.load(std::memory_order_relaxed)) captured_ = any_captured_ = true;
    return any_captured_.load(std::memory_order_relaxed) && board_.load(std::memory_order_relaxed) != nullptr;
  }
  /// What a launch's kernel is to be called.
  CallName name(const NamedLaunch& launch, bool captured) { return names_.name(launch, captured); }
  /// As Executor::note().
  void note(const Launch& launch, cudaStream_t stream, std::span<const unsigned long long> ids, bool captured) {
    const CallBoard* const board = board_.load(std::memory_order_relaxed);
    if (board == nullptr) return;
    if (!captured && progress_.wants_mark()) progress_.mark(board->page(rank_).calls.last(), stream);
    note_calls(*board, rank_, launch, captured);
    if (captured) return;
    const uint64_t number = board->page(rank_).launches.load(std::memory_order_relaxed);
    places_.add(number, {ids.front(), domain_->device()});
    for (const unsigned long long joined : ids.subspan(1)) places_.join(number, {joined, domain_->device()});
  }
  /// The collective that comes next once all ranks have come to it; null: none.
  void note_waiting_to_call(const CollectiveWork* next);
  /// The host waits for the ranks in this call.
  void wait_on_host(HostCall call, std::span<const int> ranks);
  void set_timeout(std::chrono::milliseconds timeout) { late_ranks_.set_timeout(timeout); }
  void leave();
  /// Any thread, at any time: running and later launches end soon, and the others can see it.
  void abort();
  /// What another rank does, as far as it can be seen. Any thread; asks the rank, for the next call.
  Executor::DoingsOfPeer doings_of(int peer);
  /// As Executor::is_needed().
  bool is_needed() const;
  /// After all ranks have left.
  std::optional<std::string> difference_in_the_end() const;
  /// Afterwards nobody is told of anything any more. Not under a lock that whoever is told takes.
  void stop();

  /// As Executor::progress() and Executor::passed(). Any thread.
  std::optional<Executor::Progress> progress() { return progress_.progress(board_.load(std::memory_order_acquire)); }
  Executor::Passed passed() { return progress_.passed(); }
  /// As Executor::awaited().
  std::vector<int> awaited();

 private:
  void look();
  void begin_to_look_at_calls(const CallBoard& board);
  void look_at_calls(const CallBoard& board);
  std::optional<KernelWaits::Finding> look_at_kernels(const CallBoard& board,
                                                      std::chrono::steady_clock::time_point now);
  void note_waits_in_collectives(const CallBoard& board);
  void warn_of(const CallBoard& board, const KernelWait& wait);
  std::optional<std::string> look_at_collectives(const CallBoard& board, std::chrono::steady_clock::time_point now);
  std::optional<int> find_dead(const CallBoard& board, const KernelWait& wait,
                               std::chrono::steady_clock::time_point now);
  std::optional<std::string> look_at_data() const;
  void take_over_runs(const CallBoard& board);
  std::optional<std::string> look_at_runs(const CallBoard& board) const;
  std::string call_marked(int rank, int peer, bool sends, SeenTag tag) const;
  std::string describe(int rank) const;
  void note_end();
  void answer();
  void report(ncclResult_t code, const std::string& sentence);

  std::shared_ptr<Domain> domain_;
  const int rank_;
  const int ranks_;
  std::atomic<const CallBoard*> board_{nullptr};  ///< the domain's, once it is reached; none: ranks do not look
  std::atomic<bool> calls_{false};                ///< whether this rank ever wanted to launch anything
  StreamPlaces places_;
  std::atomic<bool> aborted_{false};
  std::atomic<bool> captured_{false};      ///< anything, by this rank
  std::atomic<bool> any_captured_{false};  ///< or by another as far as it has been seen

  GpuProgress progress_;
  std::atomic<uint64_t> watch_{0};  ///< 0: nobody looks

  /// What doings_of() has asked a peer last, and whether the peer answers.
  struct Asked {
    uint64_t question = 0;
    std::chrono::steady_clock::time_point at{};
    bool answers = false;
  };
  // Of whoever calls awaited().
  CallNames no_names_;
  KernelWaitReader awaited_{domain_->signals(), no_names_};

  std::mutex doings_mutex_;
  std::vector<Asked> asked_for_doings_;

  // Of the looking thread.
  LateRanks late_ranks_;              ///< but for its timeout
  std::unique_ptr<CallCheck> check_;  // and with it the next three
  std::unique_ptr<KernelWaits> kernel_waits_;
  std::unique_ptr<PresentLaunch> present_;
  std::unique_ptr<LongCircle> circle_;
  StoppedPeers stopped_peers_;
  DeadPeers dead_peers_;
  CallNames names_;
  KernelWaitReader kernel_wait_;
  CollectiveWaits seen_waits_;  ///< by the last look at what was not captured
  std::chrono::steady_clock::time_point looked_at_kernels_{};
  bool noted_end_ = false;
  bool reported_ = false;
};

}  // namespace nitinol::cuda
