// One rank of a communicator: what it knows of its peers, what carries its operations out, and the state it is in.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/process_state.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/fork_guard.h"
#include "comm/config.h"
#include "comm/handle_exchange.h"
#include "comm/kernel_memory.h"
#include "comm/latest_sentence.h"
#include "comm/life_cycle.h"
#include "comm/reduction_operators.h"
#include "comm/registrations.h"
#include "comm/stream_order.h"
#include "comm/strict_board.h"
#include "comm/wishes.h"
#include "diagnostics/flight_recorder.h"
#include "diagnostics/ras/ras.h"
#include "executor/executor.h"
#include "tuning/choose.h"

namespace nitinol {

struct Gathering;
class Standstill;

class Communicator : public std::enable_shared_from_this<Communicator>, private ras::Subject {
 public:
  /// Whom a call may wait for, which does not hear by itself that a rank is gone.
  enum class Needs { kAllRanks, kNobody };
  /// A call of which an abort from another thread must take notice before anything is freed.
  class Visit {
   public:
    explicit Visit(Communicator& communicator, Needs needs = Needs::kNobody);
    ~Visit() { leave(); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    void leave();

    Communicator& communicator_;
    const bool needs_all_;
  };

  /// While one lives, an abort of the communicator also ends the making of `child`; null: of none.
  class Making {
   public:
    Making(Communicator& parent, const std::shared_ptr<Communicator>& child);
    ~Making();
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

   private:
    Communicator& parent_;
  };

  /// While one lives, these ranks can see that this one waits on the host for them to make the same call.
  class HostWait {
   public:
    HostWait(Communicator& communicator, HostCall call, std::vector<int> ranks);
    ~HostWait() { tell(HostCall::kNone); }
    HostWait(const HostWait&) = delete;
    HostWait& operator=(const HostWait&) = delete;

   private:
    void tell(HostCall call) const;

    Communicator& communicator_;
    const std::vector<int> ranks_;
  };

  ras::RankReport health() const override;
  bool has_failed() const override { return failure_sentence() != nullptr; }
  std::string dump(bool as_text) const override;
  std::optional<Executor::Progress> progress() const;
  Executor::Passed how_far() const;
  std::shared_ptr<const OperationTimes> times() const;
  void take_seat(std::span<const Peer> peers);

  /// Not yet usable: place() and one of the set_up functions follow, perhaps on another thread. `device`: CUDA device
  /// of the rank; `made_by`: the function that was called for it, for the log.
  Communicator(int device, Config config, const char* made_by = "ncclCommInitRank");
  ~Communicator() override;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  void place(int rank, int ranks) {
    rank_ = rank;
    ranks_ = ranks;
  }
  /// By which the log knows it.
  void note_handle(const void* handle) { handle_ = handle; }
  /// Counts the calls of which the log has lines.
  uint64_t next_logged_call() { return logged_calls_.fetch_add(1, std::memory_order_relaxed); }
  /// Before place() it is known by the rank of the communicator that it comes of.
  void come_of(const Communicator& parent) { rank_in_parent_ = parent.rank_; }
  /// Joins the other ranks. Collective. Throws Error; on return the communicator is ready.
  void set_up(const std::vector<UniqueId>& ids);
  /// The same from a child of another communicator's bootstrap.
  void set_up(std::unique_ptr<Bootstrap> bootstrap);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int device() const { return device_; }
  const Config& config() const { return config_; }
  Bootstrap& bootstrap() { return *bootstrap_; }
  const std::atomic<bool>* abort_flag() const { return &aborted_; }
  /// Whether threads use it that nobody waits for.
  bool has_visitors() const { return visitors_.load() != 0; }

  /// What ncclCommGetAsyncError reports. Lock-free.
  ncclResult_t state() const { return state_.load(std::memory_order_acquire); }
  Stage stage() const { return stage_at(state()); }
  /// Throws Error unless the table of the life cycle allows the call now: the code that the table says, and the
  /// sentence of the failure if there was one. False: the call is to succeed without effect.
  bool require(Call call, const char* function) const;
  /// Whether this process was forked from that of the communicator: then it is the parent's, and everything that its
  /// peers see of it.
  bool is_inherited() const { return forks_before_ != forks_counted(); }
  /// Throws Error(ncclInvalidUsage) if it is.
  void require_own(const char* function) const;
  void require_ready(const char* function, Call call = Call::kCommunicate) const {
    static_cast<void>(require(call, function));
  }
  void require_initialised(const char* function) const { static_cast<void>(require(Call::kQuery, function)); }
  /// The sentence of this communicator's first failure; null if there was none.
  const char* failure_sentence() const { return failure_text_.load(std::memory_order_acquire); }
  /// If it has failed, throws that as an Error.
  void throw_failure() const;
  /// The same, or what a repair of it failed with later; of one that is well what the latest call that failed did so
  /// with. Null if there is none.
  const char* last_error() const;
  /// A repair of one that had failed has failed, too.
  void note_failed_repair(const std::exception& thrown) noexcept { failed_repairs_.set(sentence_of(thrown)); }
  void note_failed_call(const std::exception& thrown) noexcept { failed_calls_.set(sentence_of(thrown)); }

  /// Writes what the flight recorder knows, as text if the name ends in .txt. Any thread. Throws Error.
  void dump_to(const std::string& path) const;
  /// Null unless the settings ask for strict checks, and there are several ranks.
  const std::shared_ptr<StrictBoard>& strict_board() const { return strict_board_; }
  /// Numbers the comparisons of NITINOL_CHECK=strict.
  uint64_t next_strict_check() { return ++strict_checks_; }
  /// What is certain to be issued next; null: nothing any more.
  void announce(const CollectiveWork* next);
  /// By whoever looks after a call that waits on the host for other ranks to make it too; any thread. `held`: all
  /// threads of the program wait so.
  void note_wait(const HeldProgram* held);
  /// After so long without progress operations fail; 0: never. Throws Error.
  void set_timeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds timeout() const { return timeout_; }
  /// What another rank does, as far as it is known.
  DoingsOfRank doings_of(int rank) const;

  ReductionOperators& operators() { return operators_; }
  Registrations& registrations() { return registrations_; }
  Registrations& windows() { return windows_; }

  /// What becomes of a launch that needs something which has to be waited for.
  enum class IfNotReady { kWait, kLeave };
  /// Carries out one group's tasks of this rank in stream order. Throws Error; a failure other than an invalid argument
  /// leaves the communicator failed. False: it was left, and nothing is done.
  bool run(Launch& launch, const std::vector<cudaStream_t>& streams, IfNotReady otherwise = IfNotReady::kWait);
  /// The two halves of it: plans, and reaches what the launch needs, which may wait for running operations; and hands
  /// it to the executor, which waits for nothing.
  bool get_ready(Launch& launch, cudaStream_t stream, IfNotReady otherwise = IfNotReady::kWait);
  void submit(const Launch& launch, const std::vector<cudaStream_t>& streams);
  /// Plans a launch that is not carried out. Whatever it throws, the communicator stays as it is.
  void plan_to_estimate(Launch& launch);
  /// Microseconds that it takes as it is planned, if all ranks come to it at the same time, and the messages of a
  /// launch (executor/simulate). Throw Error if the communicator is being aborted.
  double estimate(const CollectiveWork& planned);
  double estimate(std::span<const MessageWork> messages);

  /// The two halves of finalising: wait for everything issued here; then for all ranks, but in a hurry not for those
  /// whose process is stopped. Throw Error.
  void begin_finalise(bool in_a_hurry);
  void finish_finalise(bool in_a_hurry);
  /// Whether this rank leaves without others that do not come and do not need it: but with NITINOL_TIMEOUT, and where
  /// calls are compared, it is told who does not.
  bool may_leave_alone() const;
  /// After so long: all may look then whether calls matched.
  static constexpr std::chrono::milliseconds kPatienceTogether{1000};
  /// How long others are waited for that have not come to finalise.
  std::chrono::milliseconds patience_with_leavers() const;
  /// Waits until another thread has finished finalising this one, it fails, or somebody is about to destroy it. False
  /// if that takes longer.
  bool wait_until_finalised(std::chrono::milliseconds within) const;
  void expect_end();
  Phase phase() const { return phase_.load(std::memory_order_acquire); }
  /// Where the ranks of this process meet to leave.
  const std::shared_ptr<Gathering>& gathering() const { return gathering_; }
  /// Names those that are not among the given ones: "rank 1 (host h, pid 7, device 1), rank 2 ...".
  std::string local_ranks_but(const std::vector<int>& ranks);
  /// Other processes' ranks, that this one has come to leave, and waits for all of its process but these.
  void tell_of_local_ranks_but(const std::vector<int>& ranks);
  /// Names the communicator on all its ranks.
  const KeyId& identity() const { return identity_; }
  /// Stops whatever runs, for good: the communicator is only to be torn down. Any thread, any time.
  void abort();
  /// Stops running operations, and a call that is still under way. The communicator counts as being revoked.
  /// `to_shrink`: by ncclCommShrink.
  void begin_revoke(bool to_shrink);
  /// Waits until it is quiet, which makes it revoked. The state stays ncclInProgress if its call `goes_on`.
  void finish_revoke(bool goes_on = false);
  /// A communicator of the ranks that are not excluded, which alone call this; `child` is made theirs. `stop`: this one
  /// is being revoked, and has been before. Throws Error.
  void shrink(const std::vector<int>& excluded, Communicator& child, bool stop);
  /// A shrink will not come to that, because of what was thrown. Takes no memory.
  void tell_of_failed_shrink(std::span<const int> excluded, const std::exception& thrown) noexcept;
  /// The same of a split, if this one was revoked: of others all ranks hear anyway when they fail.
  void tell_of_failed_split(const std::exception& thrown) noexcept;
  /// Releases what is held; after finalise() or abort(). Bounded: of what threads use that are still inside a call, the
  /// last of them lets go.
  void tear_down();

  /// What work in the background waits for.
  enum class Awaits {
    kRanks,   ///< for other ranks to call the same: it exchanges something with all of them, out of band
    kNoRank,  ///< for nobody to call: for peers' service threads, the driver, or other communicators
  };
  /// Work that goes on in the background of a non-blocking call; the state is ncclInProgress meanwhile and `work` may
  /// throw Error. Waits for an earlier one.
  void run_in_background(std::function<void()> work, Awaits awaits = Awaits::kRanks);
  void wait_for_background();
  /// What went on has ended, and a state of ncclInProgress with it, unless the communicator is being revoked.
  void end_progress();
  /// For whoever waits for anything else than what it has called: throws Error once that was stopped by a failure, an
  /// abort or because the communicator is revoked.
  void throw_if_stopped() const;

  /// The first failure counts. Passed on to the other ranks if `tell_others`.
  void fail_with(ncclResult_t code, const std::string& sentence, bool tell_others);
  /// Because of what the failure watch knows.
  void fail_because_of(const Failure& known);
  /// Because of what was thrown, as far as there is memory to tell it. The others are told of lack of memory alone.
  void fail_because(const std::exception& thrown) noexcept;
  /// The sentence, of a wait that was in vain, and the ranks of this host that are stopped as far as it has none of
  /// them.
  std::string naming_the_stopped(const std::string& sentence) const;
  /// For one that is being made, perhaps by another thread: it has failed now, and that thread ends soon.
  void give_up(const Error& error);

 private:
  /// The state is to be read before the rest: whoever has seen it change is not to see an older stage.
  Stage stage_at(ncclResult_t state) const {
    return stage_of(phase(), state, {revoked_to_shrink_.load(), regroups_.load()});
  }
  void enter(Phase next);
  /// False if it had failed before.
  bool become_failed(ncclResult_t code, const std::string& sentence, bool is_last_error);
  /// Runs the body, in which the launch is planned or handed on, as a visitor; its failures become the communicator's.
  template <class Body>
  void operate(const Launch& launch, Body&& body);
  [[noreturn]] void fail_operation(const Launch& launch, const std::exception& thrown);
  void require_not_finalised(const Launch& launch) const;
  template <class PlanOf>
  void plan(Launch& launch, PlanOf&& plan_of) const;
  bool plan_and_prepare(Launch& launch, cudaStream_t stream, IfNotReady otherwise);
  void enqueue(const Launch& launch, const std::vector<cudaStream_t>& streams);
  void object_to(const std::vector<cudaStream_t>& streams, const Error& error) const;
  void stop_operations();
  void end_executor();
  template <class Step>
  void attempt(Step&& step) const noexcept;
  void take_leave();
  void let_go_of_operations(std::chrono::steady_clock::time_point deadline);
  void say_goodbye();
  bool wait_for_visitors(std::chrono::steady_clock::time_point deadline) const;
  /// False: visitors are in it yet, and the last of them tears it down.
  bool has_to_itself(std::chrono::steady_clock::time_point deadline);
  void tear_down_as_last() noexcept;
  void let_go_of_all(std::chrono::steady_clock::time_point deadline);
  void flush(std::chrono::milliseconds patience);
  void wait_for_leavers(bool in_a_hurry);
  bool wait_until_idle(std::chrono::steady_clock::time_point deadline);
  bool wait_until_quiet(std::chrono::steady_clock::time_point deadline);
  bool is_quiet() const;
  static constexpr const char* kAborted = "aborted its communicator";  ///< what others hear of it then
  std::string self_description() const;
  std::string name_in_log() const;
  std::string state_in_words() const;
  std::string failure_in_log(const std::string& sentence) const;
  /// "comm ... - STEP COMPLETE", as scripts that read logs expect it: Destroy if all was done that had been called,
  /// else Abort, whichever call it was.
  void log_completion(Subsystem subsystem, const char* step) const;
  void log_init(const char* step) const;
  std::string place_in_log() const;
  /// The other ranks, that this one has failed; without memory for that, that it has none.
  void tell(Bootstrap& bootstrap, ncclResult_t code, const std::string& sentence, bool aborted) noexcept;
  void tell_of_failed_set_up(Bootstrap& bootstrap, const std::exception& thrown) noexcept;
  void meet_peers();
  std::vector<Peer> meet_and_agree();
  void agree(std::span<const Wishes> all);
  void check_peers(const std::vector<Peer>& peers) const;
  void tell_bootstrap_of(const std::vector<Peer>& peers);
  /// Of the ranks that are left by a shrink.
  struct Meeting {
    Secret secret;        ///< no other meeting's
    KeyId list{};         ///< names who is excluded
    uint64_t number = 1;  ///< counts those without these ranks
  };
  Meeting next_meeting(std::span<const int> excluded) const;
  std::unique_ptr<Bootstrap> meet(const Meeting& meeting, const std::vector<int>& excluded,
                                  const std::vector<int>& members, const Communicator& child);
  std::unique_ptr<Bootstrap> meet_or_tell(const std::vector<int>& excluded, std::vector<int>& members,
                                          Communicator& child, bool stop);
  RegroupArguments regroup_arguments(const Meeting& meeting, const std::vector<int>& members,
                                     const Communicator& child);
  void give_up_shrinking_if_told(const Communicator& child) const;
  void fail_for_lost(const std::vector<int>& members, Standstill& standstill) const;
  RegroupDesk& desk();
  void leave_desk();
  std::string stopped_ranks_beside(const std::string& sentence) const;
  std::string members_that_are(ProcessState state, const std::vector<int>& members) const;
  std::string word_of_members(const std::vector<int>& members, std::string_view said) const;
  Peer describe() const;
  Plan plan_or_repeat(const CollectiveWork& work);
  void make_executor_for(std::vector<Peer> peers, bool peer_access);
  bool finds_peer_access(const std::vector<Peer>& peers);
  /// Waits a little for word of an earlier failure elsewhere; if it comes this one has failed of it, and it is thrown.
  void throw_first_failure(const std::string& sentence);
  std::optional<Failure> cause_of(const std::string& sentence) const;
  std::string naming_the_gone(const std::string& sentence) const;
  void fail_in_operation(ncclResult_t code, const std::string& sentence);
  void follow_failures();
  const Failure* find_needed(std::span<const Failure> gone);
  void tell_of_gone(std::span<const Failure> gone);
  bool is_stuck_in_a_call();
  bool waits_unheard(const std::vector<int>& awaited);

  int rank_ = -1;
  int ranks_ = 0;
  int rank_in_parent_ = -1;  ///< -1: it has none
  const int device_;
  const Config config_;
  const char* const made_by_;
  const void* handle_ = nullptr;
  std::atomic<uint64_t> logged_calls_{0};
  const int forks_before_ = count_forks();
  const int owner_ = getpid();
  std::shared_ptr<Gathering> gathering_;
  Wishes wishes_;  ///< this rank's own, and from the meeting of the ranks on those that they have agreed on
  Rules rules_;    ///< as these say
  Limits limits_;
  Question last_question_{.ranks = 0};  ///< the collective launched last: programs repeat themselves
  Plan last_plan_;
  ReductionOperators operators_;
  Registrations registrations_;
  Registrations windows_;

  std::atomic<ncclResult_t> state_{ncclInProgress};
  std::atomic<Phase> phase_{Phase::kInitialising};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> ending_{false};   ///< the handle has gone: nobody polls any more
  std::atomic<bool> stopped_{false};  ///< operations are to end, and none to begin
  mutable std::mutex failure_mutex_;
  std::string failure_sentence_;  // written once, under failure_mutex_
  bool failure_logged_ = false;   ///< of the thread that has written it
  std::atomic<const char*> failure_text_{nullptr};
  LatestSentence failed_repairs_;
  LatestSentence failed_calls_;
  static constexpr unsigned kLeftToVisitors = 1U << 31;  ///< beside their number: the last of them is to tear it down
  std::atomic<unsigned> visitors_{0};
  std::atomic<uint64_t> calls_begun_{0};             ///< those of them that need all ranks
  std::atomic<uint64_t> calls_ended_{0};             ///< so many of these are over
  std::atomic<HostCall> waits_in_{HostCall::kNone};  ///< on the host, for other ranks
  std::atomic<const char*> waits_to_call_{nullptr};  ///< the same, in strict mode; a collective's name
  std::mutex making_mutex_;                          // guards making_
  std::weak_ptr<Communicator> making_;
  uint64_t strict_checks_ = 0;
  std::shared_ptr<StrictBoard> strict_board_;
  std::atomic<std::chrono::milliseconds> timeout_{};
  FlightRecorder recorder_;

  std::unique_ptr<Bootstrap> bootstrap_;
  KeyId identity_{};  ///< known with the bootstrap, and kept when that has gone
  std::unique_ptr<SocketHandleExchange> handles_;
  mutable std::mutex executor_mutex_;  // guards the pointer against abort() from another thread
  std::unique_ptr<Executor> executor_;
  std::mutex operations_mutex_;  // of programs that call from several threads at a time, which they should not
  StreamOrder order_;
  /// The failure watch's, once ranks are gone.
  struct {
    size_t known = 0;        ///< so many of them, when it looked last
    size_t told = 0;         ///< so many of them are in the log
    uint64_t last_call = 0;  ///< of calls_begun_
    int looks_at_call = 0;   ///< that found it under way
    int looks_unheard = 0;   ///< that found a wait for a rank of which no word would come
  } gone_;
  KernelsOfProcess kernels_;
  std::mutex background_mutex_;  // held while background_ is started or joined
  std::thread background_;
  std::atomic<Awaits> background_awaits_{Awaits::kRanks};
  std::atomic<bool> revoked_to_shrink_{false};
  std::atomic<bool> regroups_{false};  ///< in the background, since it was revoked
  std::map<KeyId, uint64_t> shrinks_;  ///< how often each list of ranks was excluded so far
  std::shared_ptr<RegroupDesk> desk_;  ///< for those that shrink; null: too few ranks to meet without one
  ras::Seat seat_;                     ///< goes first: whoever has it may ask
};

/// The settings as the bootstrap wants them.
BootstrapOptions bootstrap_options();
/// NITINOL_WARN_AFTER; 0: never.
std::chrono::milliseconds warn_after();

}  // namespace nitinol
