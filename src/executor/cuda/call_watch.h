// One rank's part in finding out what goes wrong between ranks: it writes its calls on the call board, and a thread of
// the process looks now and then whether they match the others', and whether kernels have waited too long.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/attendance.h"
#include "device/event.h"
#include "executor/call_check.h"
#include "executor/call_waits.h"
#include "executor/cuda/domain.h"
#include "executor/cuda/kernel_wait_reader.h"
#include "executor/launch_times.h"
#include "executor/long_circle.h"
#include "executor/marked_calls.h"
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
  /// While it lives the others know that this rank is busy setting something up, and their kernels have patience.
  class SettingUp {
   public:
    explicit SettingUp(CallPage* page) : page_(page) { set(1); }
    ~SettingUp() { set(0); }
    SettingUp(const SettingUp&) = delete;
    SettingUp& operator=(const SettingUp&) = delete;

   private:
    void set(uint32_t value) {
      if (page_ != nullptr) page_->setting_up.store(value, std::memory_order_release);
    }
    CallPage* page_;
  };
  /// What this rank is about to note, when that may take long: until then it may have to wait for kernels that wait for
  /// others.
  [[nodiscard]] SettingUp announce(const Launch& launch, cudaStream_t stream);
  /// Around every launch that is not captured, in their order.
  void begin_launch(cudaStream_t stream) {
    if (times_) times_->begin(stream);
  }
  void end_launch(cudaStream_t stream) {
    if (times_) times_->end(stream);
  }
  /// Whether launches need names: not before anything was captured, nor if nobody looks.
  bool wants_names(bool captured) {
    if (captured && !any_captured_.load(std::memory_order_relaxed)) any_captured_ = true;
    return any_captured_.load(std::memory_order_relaxed) && board_.load(std::memory_order_relaxed) != nullptr;
  }
  /// What a launch's kernel is to be called.
  CallName name(const NamedLaunch& launch, bool captured) { return names_.name(launch, captured); }
  /// As Executor::note().
  void note(const Launch& launch, cudaStream_t stream, unsigned long long id, bool captured) {
    const CallBoard* const board = board_.load(std::memory_order_relaxed);
    if (board == nullptr) return;
    if (wants_mark_.load(std::memory_order_relaxed) && !captured) mark(board->page(rank_).calls.last(), stream);
    note_calls(*board, rank_, launch, captured);
    if (captured) return;
    const uint64_t number = board->page(rank_).launches.load(std::memory_order_relaxed);
    places_.add(number, {id, domain_->device()});
  }
  /// The collective that comes next once all ranks have come to it; null: none.
  void note_waiting_to_call(const CollectiveWork* next);
  /// The host waits for the ranks in this call.
  void wait_on_host(HostCall call, std::span<const int> ranks);
  void set_timeout(std::chrono::milliseconds timeout);
  void leave();
  /// Any thread, at any time: running and later launches end soon, and the others can see it.
  void abort();
  /// What another rank does, as far as it can be seen. Any thread; asks the rank, for the next call.
  Executor::DoingsOfPeer doings_of(int peer);
  /// After all ranks have left.
  std::optional<std::string> difference_in_the_end() const;
  /// Afterwards nobody is told of anything any more. Not under a lock that whoever is told takes.
  void stop();

  /// Any thread. Waits a moment for the looking thread, and makes do with older news if that does not come.
  std::optional<Executor::Progress> progress();
  /// The same, but older news will not do.
  Executor::Passed passed();

 private:
  /// An event in a stream behind so many collectives.
  struct Mark {
    Event event;
    uint64_t behind = 0;
    bool taken = false;
    bool recorded = false;
  };
  bool ask_how_far();
  void find_progress();
  Executor::Passed passed_now() const;
  Mark* take_mark();
  void mark(uint64_t behind, cudaStream_t stream);
  void collect_marks();

  void look();
  void look_at_calls(const CallBoard& board);
  std::optional<KernelWaits::Finding> look_at_kernels(const CallBoard& board,
                                                      std::chrono::steady_clock::time_point now);
  void look_for_room(const CallBoard& board, std::chrono::steady_clock::time_point now);
  std::optional<std::string> look_at_data() const;
  std::string call_marked(int rank, int peer, bool sends, SeenTag tag) const;
  void note_end();
  bool idle() const;
  void answer();
  uint32_t units_of_patience() const;
  void adjust_patience();
  bool is_just_back();
  bool is_setting_up(int rank) const;
  std::vector<int> noted_as_late() const;
  void look_for_late_ranks();
  void ask_all();
  bool all_have_answered() const;
  std::string late_sentence(const std::vector<int>& noted) const;
  std::string list(const std::vector<int>& ranks, bool for_messages) const;
  void report(ncclResult_t code, const std::string& sentence);

  std::shared_ptr<Domain> domain_;
  const int rank_;
  const int ranks_;
  std::atomic<const CallBoard*> board_{nullptr};  ///< the domain's, once it is reached; none: ranks do not look
  std::atomic<bool> calls_{false};                ///< whether this rank ever wanted to launch anything
  std::atomic<std::chrono::milliseconds> timeout_{};
  StreamPlaces places_;
  std::unique_ptr<LaunchTimes> times_;  ///< where they are recorded
  std::atomic<bool> aborted_{false};
  std::atomic<bool> any_captured_{false};  ///< by this rank, or another as far as it has been seen

  // How far the GPU has come: a few events, each when somebody has looked since the last.
  std::atomic<bool> wants_mark_{true};
  std::mutex marks_mutex_;  // guards what follows
  std::array<Mark, 4> marks_;
  uint64_t ended_ = 0;       ///< collectives that are known to be through
  Executor::Passed passed_;  ///< as it was last found out
  // How often that was asked for, and found out: by the looking thread, since it may take CUDA long to answer.
  std::atomic<uint64_t> asked_{0};
  std::atomic<uint64_t> answered_{0};

  std::atomic<uint64_t> watch_{0};  ///< 0: nobody looks

  /// What doings_of() has asked a peer last, and whether the peer answers.
  struct Asked {
    uint64_t question = 0;
    std::chrono::steady_clock::time_point at{};
    bool answers = false;
  };
  std::mutex doings_mutex_;
  std::vector<Asked> asked_for_doings_;

  // Of the looking thread.
  std::optional<std::chrono::steady_clock::time_point> set_up_since_;  ///< since when some rank is setting things up
  uint64_t begun_ = 0;                                                 ///< the last collective that it has seen issued,
  std::chrono::steady_clock::time_point begun_since_{};                ///< and when it saw that first
  std::unique_ptr<CallCheck> check_;                                   // and with it the next four
  std::unique_ptr<KernelWaits> kernel_waits_;
  std::unique_ptr<PresentLaunch> present_;
  std::unique_ptr<LongCircle> circle_;
  StoppedPeers stopped_peers_;
  CallNames names_;
  KernelWaitReader kernel_wait_;
  std::chrono::steady_clock::time_point looked_at_kernels_{};
  Attendance attendance_;
  std::optional<std::chrono::steady_clock::time_point> forgives_until_;  ///< what kernels have noted meanwhile
  bool noted_end_ = false;
  std::vector<uint64_t> questions_;  ///< that the peers were asked; empty: they were not
  std::chrono::steady_clock::time_point asked_at_{};
  bool reported_ = false;
  std::optional<Executor::Passed> when_reported_;  ///< how far the GPU had come then
};

}  // namespace nitinol::cuda
