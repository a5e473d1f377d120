#include "comm/communicator.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

#include "base/attendance.h"
#include "base/host.h"
#include "base/last_error.h"
#include "base/log.h"
#include "base/settings.h"
#include "bootstrap/regroup_desk.h"
#include "comm/strict_circle.h"
#include "device/guards.h"
#include "executor/simulate/estimate.h"
#include "model/signature.h"

namespace nitinol {
namespace {

/// The sum of what the user allows: environment and configuration.
Rules make_rules(const Config& config) {
  Rules rules = Rules::any();
  if (const auto text = settings().text_if_set(Setting::kAlgo)) restrict_algorithms(*text, rules);
  if (const auto text = settings().text_if_set(Setting::kProto)) restrict_protocols(*text, rules);
  rules.reproducible = settings().flag(Setting::kReproducible);
  rules.min_channels = config.min_ctas;
  rules.max_channels = most_ctas(config);
  return rules;
}

/// "in AllReduce (count 5, ...): ", to be put before what went wrong with the launch.
std::string context_of(const Launch& launch) {
  if (!launch.collectives.empty()) return formatted("in {}: ", Signature::of(launch.collectives.front(), 0).text());
  if (launch.messages.empty()) return "";
  const MessageWork& first = launch.messages.front();
  const MessageSignature signature{.bytes = first.bytes, .type = first.stated};
  return formatted("in {}: ", signature.text(first.direction == MessageWork::Direction::kSend, first.peer));
}

void log_plans(const Launch& launch) {
  for (const CollectiveWork& work : launch.collectives) {
    if (work.count == 0) continue;
    log_info(Subsystem::kTuning, "{}: {} Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..{}}}{}", name_of(work.what),
             work.count * bytes_of(work.type), name_of(work.plan.algorithm), name_of(work.plan.protocol),
             work.plan.channels - 1, work.plan.apart ? " in parts" : "");
  }
}

bool is_fatal(ncclResult_t code) { return code != ncclInvalidArgument; }

/// For how long operations that were stopped may begin yet, so that nothing of them is left.
constexpr std::chrono::milliseconds kTimeToBegin{100};

/// How long an abort waits for kernels and other threads to leave before it lets them be.
constexpr std::chrono::milliseconds kAbortPatience{1500};

/// How long a communicator that is destroyed waits for operations if a rank's process is stopped.
constexpr std::chrono::milliseconds kPatienceWithStopped{2000};

/// How long word of a failure may take from the rank that noticed it.
constexpr std::chrono::milliseconds kFailurePatience{500};
constexpr const char* kAborted = "aborted its communicator";

}  // namespace

Communicator::Communicator(int device, Config config)
    : device_(device), config_(std::move(config)), rules_(make_rules(config_)) {}

Communicator::~Communicator() {
  if (background_.joinable()) {
    abort();
    background_.join();
  }
}

Communicator::Visit::Visit(Communicator& communicator) : communicator_(communicator) {
  communicator_.require_own("a call that was begun before a fork");
  communicator_.visitors_.fetch_add(1);
  if (!communicator_.aborted_.load()) return;
  communicator_.visitors_.fetch_sub(1);
  fail(ncclInvalidUsage, "rank {}: the communicator was destroyed or aborted meanwhile", communicator_.rank_);
}

Communicator::Making::Making(Communicator& parent, const std::shared_ptr<Communicator>& child) : parent_(parent) {
  const std::lock_guard lock(parent.making_mutex_);
  parent.making_ = child;
  if (child && parent.aborted_.load()) child->abort();
}

Communicator::Making::~Making() {
  const std::lock_guard lock(parent_.making_mutex_);
  parent_.making_.reset();
}

Communicator::HostWait::HostWait(Communicator& communicator, HostCall call, std::vector<int> ranks)
    : communicator_(communicator), ranks_(std::move(ranks)) {
  tell(call);
}

void Communicator::HostWait::tell(HostCall call) const {
  const std::lock_guard lock(communicator_.executor_mutex_);
  if (communicator_.executor_) communicator_.executor_->wait_on_host(call, ranks_);
}

void Communicator::announce(const CollectiveWork* next) {
  const std::lock_guard lock(executor_mutex_);
  if (executor_) executor_->announce(next);
}

void Communicator::note_wait(const HeldProgram* held) {
  const std::lock_guard lock(executor_mutex_);
  if (executor_) executor_->note_wait(held);
}

void Communicator::require_own(const char* function) const {
  if (!is_inherited()) return;
  fail(ncclInvalidUsage,
       "{}: the communicator belongs to the process (pid {}) from which this one (pid {}) was forked: a forked process "
       "cannot use it",
       function, owner_, getpid());
}

bool Communicator::require(Call call, const char* function) const {
  if (call != Call::kQuery) require_own(function);
  const ncclResult_t now = state();
  const Stage stage = stage_at(now);
  const char* const failure = failure_sentence();
  const bool was_never_ready = stage == Stage::kInitialising && now != ncclSuccess && now != ncclInProgress;
  const bool returns_state = was_never_ready || verdict_on(call, stage) == Verdict::kReturnsState;
  if (!returns_state) return permits(call, stage, function);
  if (now != ncclInProgress && failure != nullptr) {
    fail(now, "{}: the communicator has failed: {}", function, failure);
  }
  if (call == Call::kCommunicate && now == ncclInProgress) {  // programs might take that for "it goes on"
    log_warn("{}: the communicator {}: the call is not carried out", function, explain(stage));
  }
  // It may have become ready in this very moment; the caller is told to look again.
  fail(now == ncclSuccess ? ncclInProgress : now, "{}: the communicator {}", function, explain(stage));
}

Plan Communicator::plan(const CollectiveWork& work) {
  const Question question = question_of(work, ranks_);
  if (question != last_question_) {
    last_plan_ = choose(question, limits_, rules_);
    last_question_ = question;
  }
  return last_plan_;
}

void Communicator::plan(Launch& launch) {
  if (ranks_ == 1) return;
  if (!executor_->follows_empty_collectives()) {
    std::erase_if(launch.collectives, [](const CollectiveWork& work) { return work.count == 0; });
  }
  for (CollectiveWork& work : launch.collectives) {
    if (work.count == 0) continue;
    work.plan = plan(work);
  }
}

bool Communicator::plan_and_prepare(Launch& launch, cudaStream_t stream, IfNotReady otherwise) {
  plan(launch);
  if (ranks_ == 1 || executor_->is_ready_for(launch)) return true;
  if (otherwise == IfNotReady::kLeave) return false;
  const FlightRecorder::SettingUp noted(recorder_, launch);
  executor_->prepare(launch, stream);
  return true;
}

void Communicator::enqueue(const Launch& launch, const std::vector<cudaStream_t>& streams) {
  if (launch.collectives.empty() && launch.messages.empty()) return;
  if (ranks_ > 1 && log_enabled(LogLevel::kInfo, Subsystem::kTuning)) log_plans(launch);
  try {
    const cudaStream_t stream = order_.enter(streams, [&] { return executor_->memory_of_kernels(); });
    const auto launching = kernels_.begin_launch();
    recorder_.note(launch, stream, order_.captured());
    executor_->note(launch, stream, order_.stream_ids(), order_.captured());
    executor_->launch(launch, stream);
    order_.leave(streams);
  } catch (const Error& error) {
    if (error.code() == ncclUnhandledCudaError) object_to(streams, error);
    throw;
  }
}

/// CUDA says of a stream that cannot be used no more than that a handle is invalid.
void Communicator::object_to(const std::vector<cudaStream_t>& streams, const Error& error) const {
  for (const cudaStream_t stream : streams) {
    const std::string objection = objection_to(stream, device_);
    if (!objection.empty()) fail(error.code(), "{} ({})", objection, error.what());
  }
}

bool Communicator::run(Launch& launch, const std::vector<cudaStream_t>& streams, IfNotReady otherwise) {
  bool ready = false;
  operate(launch, [&] {
    ready = plan_and_prepare(launch, streams.front(), otherwise);
    if (ready) enqueue(launch, streams);
  });
  return ready;
}

bool Communicator::get_ready(Launch& launch, cudaStream_t stream, IfNotReady otherwise) {
  bool ready = false;
  operate(launch, [&] { ready = plan_and_prepare(launch, stream, otherwise); });
  return ready;
}

void Communicator::submit(const Launch& launch, const std::vector<cudaStream_t>& streams) {
  operate(launch, [&] { enqueue(launch, streams); });
}

void Communicator::plan_to_estimate(Launch& launch) {
  const Visit visit(*this);
  require_not_finalised(launch);
  plan(launch);
}

double Communicator::estimate(const CollectiveWork& planned) {
  const Visit visit(*this);
  return simulate::estimate(planned, ranks_, limits_.grain(planned.type), executor_->topology(planned.plan.protocol));
}

double Communicator::estimate(std::span<const MessageWork> messages) {
  const Visit visit(*this);
  return simulate::estimate(messages, rank_, executor_->topology(Protocol::kSimple));
}

void Communicator::require_not_finalised(const Launch& launch) const {
  if (const Phase now = phase(); now == Phase::kFinalising || now == Phase::kFinalised) {
    fail(ncclInvalidUsage, "{}the communicator has been finalized or destroyed since the call", context_of(launch));
  }
}

template <class Body>
void Communicator::operate(const Launch& launch, Body&& body) {
  const Visit visit(*this);
  require_not_finalised(launch);
  const DeviceGuard device(device_);
  try {
    const std::lock_guard one_at_a_time(operations_mutex_);
    body();
  } catch (const std::exception& thrown) {
    fail_operation(launch, thrown);
  }
}

void Communicator::fail_operation(const Launch& launch, const std::exception& thrown) {
  try {
    const Error cause = as_error(thrown);
    // A peer that left because of an earlier failure is not the cause; word of that one may still be on its way. But
    // nobody waits for it where this rank's own program has stopped the call.
    const bool stopped_here = stopped_.load() && failure_sentence() == nullptr;
    if (cause.code() == ncclRemoteError && !stopped_here) throw_first_failure();
    const Error error(cause.code(), context_of(launch) + cause.what());
    if (is_fatal(error.code())) fail_with(error.code(), error.what(), true);
    throw error;
  } catch (const std::bad_alloc& lack) {
    fail_because(lack);
    throw;
  }
}

void Communicator::throw_first_failure() const {
  const auto deadline = std::chrono::steady_clock::now() + kFailurePatience;
  for (bool last = false;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    if (const auto first = bootstrap_->failure()) fail(first->result, "{}", first->sentence);
    if (last) return;
    last = std::chrono::steady_clock::now() >= deadline;  // the thread may have slept for much longer than it was to
  }
}

void Communicator::set_timeout(std::chrono::milliseconds timeout) {
  const Visit visit(*this);
  timeout_ = timeout;
  handles_->set_patience(timeout);
  bootstrap_->set_operation_timeout(timeout);
  executor_->set_timeout(timeout);
}

bool Communicator::become_failed(ncclResult_t code, const std::string& sentence, bool logs) {
  const std::lock_guard lock(failure_mutex_);
  const ncclResult_t now = state_.load(std::memory_order_relaxed);
  if (now != ncclSuccess && now != ncclInProgress) return false;
  if (was_revoked(phase())) return false;  // nothing runs that could fail
  try {
    failure_sentence_ = sentence;
    failure_text_.store(failure_sentence_.c_str(), std::memory_order_release);
    if (logs) log_warn("{}: {}", name_in_log(), sentence);  // the last error, for whoever sees the state
  } catch (const std::bad_alloc&) {                         // who polls is not to poll for ever
    if (failure_text_.load() == nullptr) failure_text_.store("out of memory", std::memory_order_release);
  }
  state_.store(code, std::memory_order_release);
  return true;
}

/// What the thread that makes it writes is not looked at: that need not know its rank yet.
void Communicator::give_up(const Error& error) {
  static_cast<void>(become_failed(error.code(), error.what(), false));
  abort();
}

void Communicator::fail_with(ncclResult_t code, const std::string& sentence, bool tell_others) {
  if (!become_failed(code, sentence, true)) return;
  stop_operations();
  if (tell_others && bootstrap_ && phase_.load() != Phase::kInitialising) tell(*bootstrap_, code, sentence);
  seat_.note_failure();
}

void Communicator::tell(Bootstrap& bootstrap, ncclResult_t code, const std::string& sentence) noexcept {
  try {
    const ncclResult_t told = code == ncclInvalidUsage ? code : ncclRemoteError;
    const char* const what = aborted_.load() ? kAborted : "failed";  // what an abort ends is no failure of its own
    bootstrap.report_failure({rank_, told, formatted("{} {}: {}", self_description(), what, sentence)});
  } catch (const std::exception&) {
    bootstrap.report_lack_of_memory();
  }
}

void Communicator::fail_because(const std::exception& thrown) noexcept {
  const ncclResult_t code = code_of(thrown);
  try {
    return fail_with(code, as_error(thrown).what(), lacks_memory(thrown));
  } catch (const std::exception&) {  // now there is no memory
  }
  try {
    fail_with(code, "out of memory", true);  // short enough to need none
  } catch (const std::exception&) {
    ncclResult_t busy = ncclInProgress;
    state_.compare_exchange_strong(busy, code, std::memory_order_acq_rel);
  }
}

void Communicator::throw_failure() const {
  const ncclResult_t now = state();
  const char* const failure = failure_sentence();
  if (now == ncclSuccess || now == ncclInProgress) return;
  fail(now, "{}", failure != nullptr ? failure : "out of memory");  // which the sentence needed
}

std::string Communicator::self_description() const {
  return formatted("rank {} (host {}, pid {}, device {})", rank_, host_name(), getpid(), device_);
}

/// A split may fail before it is known which rank of the new communicator this is to be.
std::string Communicator::name_in_log() const {
  if (rank_ >= 0 || rank_in_parent_ < 0) return formatted("rank {}", rank_);
  return formatted("the new communicator of rank {} of the old one", rank_in_parent_);
}

void Communicator::log_completion(Subsystem subsystem, const char* step) const {
  log_info(subsystem, "comm {} rank {} nranks {} cudaDev {}{}{} - {} COMPLETE", ras::text_of(identity_), rank_, ranks_,
           device_, config_.name.empty() ? "" : " name ", config_.name, step);
}

/// Not once it is revoked, as by a call behind one that goes on in the background: what was revoked stays so.
void Communicator::enter(Phase next) {
  const std::lock_guard lock(failure_mutex_);
  if (was_revoked(phase())) fail(ncclRemoteError, "rank {} revokes its communicator", rank_);
  phase_.store(next, std::memory_order_release);
}

void Communicator::begin_finalise(bool in_a_hurry) {
  const Visit visit(*this);
  enter(Phase::kFinalising);
  const DeviceGuard device(device_);
  if (strict_board_) strict_board_->leave();
  flush(in_a_hurry ? kPatienceWithStopped : std::chrono::seconds(settings().integer(Setting::kInitTimeout)));
  if (aborted_.load()) return;
  const std::lock_guard lock(executor_mutex_);
  if (executor_) executor_->leave();
}

/// Waits for the operations in streams, however slow others are; but after some patience not for one that is stopped.
void Communicator::flush(std::chrono::milliseconds patience) {
  std::vector<int> all(static_cast<size_t>(ranks_));
  std::iota(all.begin(), all.end(), 0);
  while (!wait_until_idle(std::chrono::steady_clock::now() + patience)) {
    if (aborted_.load()) return;
    const std::string stopped = members_that_are(ProcessState::kStopped, all);
    if (stopped.empty()) continue;
    const std::string sentence = formatted(
        "rank {} finalizes or destroys its communicator while operations wait; stopped (SIGSTOP, or a debugger): {}",
        rank_, stopped);
    fail_with(ncclRemoteError, sentence, true);
    fail(ncclRemoteError, "{}", sentence);
  }
}

/// Others are waited for that may wait for this program, in other communicators.
void Communicator::wait_for_leavers(bool in_a_hurry) {
  std::optional<StrictCircle> waits;
  if (strict_board_) waits.emplace(*this);
  bootstrap_->last_barrier(in_a_hurry);
}

void Communicator::finish_finalise(bool in_a_hurry) {
  const Visit visit(*this);
  if (state() == ncclSuccess || state() == ncclInProgress) {
    bootstrap_->tell_of_awaited("");
    wait_for_leavers(in_a_hurry);
    bootstrap_->watch(nullptr);
    bootstrap_->shutdown();
    const auto difference = executor_->difference_in_the_end();
    if (difference) fail(ncclInvalidUsage, "{}", *difference);
  }
  enter(Phase::kFinalised);
}

void Communicator::expect_end() {
  ending_.store(true);
  // What is under way may reach for memory of a process that is stopped.
  if (phase() == Phase::kReady) handles_->set_patience(kPatienceWithStopped);
}

std::chrono::milliseconds Communicator::patience_with_leavers() const {
  const std::chrono::milliseconds timeout = timeout_.load();
  return timeout.count() > 0 ? timeout : std::chrono::seconds(settings().integer(Setting::kInitTimeout));
}

bool Communicator::wait_until_finalised(std::chrono::milliseconds within) const {
  Attendance attendance;
  auto deadline = std::chrono::steady_clock::now() + within;
  while (phase() == Phase::kFinalising && state() == ncclInProgress && !aborted_.load() && !ending_.load()) {
    const auto now = std::chrono::steady_clock::now();
    deadline += attendance.missed(now);
    if (now >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

std::string Communicator::local_ranks_but(const std::vector<int>& ranks) {
  const Visit visit(*this);
  std::string list;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Peer& peer = handles_->peer(rank);
    if (peer.process != handles_->peer(rank_).process) continue;
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) continue;
    list += (list.empty() ? "" : ", ") + describe_rank(rank, peer);
  }
  return list;
}

void Communicator::tell_of_local_ranks_but(const std::vector<int>& ranks) {
  const Visit visit(*this);
  bootstrap_->tell_of_awaited(local_ranks_but(ranks));
}

/// False if the deadline passed, or the communicator is aborted meanwhile.
bool Communicator::wait_until_idle(std::chrono::steady_clock::time_point deadline) {
  const bool aborted = aborted_.load();
  while (!order_.idle()) {
    if (std::chrono::steady_clock::now() >= deadline || aborted_.load() != aborted) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

/// Whether operations were stopped, and those that have not begun will never do anything.
bool Communicator::is_quiet() const {
  const std::lock_guard lock(executor_mutex_);
  return executor_ && executor_->is_quiet();
}

/// The same as wait_until_idle(), but not for operations that were stopped before they began and do not begin soon:
/// what stands before them in their stream may wait for long.
bool Communicator::wait_until_quiet(std::chrono::steady_clock::time_point deadline) {
  const auto soon = std::chrono::steady_clock::now() + kTimeToBegin;
  return wait_until_idle(std::min(soon, deadline)) || is_quiet() || wait_until_idle(deadline);
}

void Communicator::stop_operations() {
  stopped_.store(true);
  const std::lock_guard lock(executor_mutex_);
  if (executor_) executor_->abort();
}

void Communicator::abort() {
  aborted_.store(true);
  stop_operations();
  const std::lock_guard lock(making_mutex_);
  // One that has said that it is ready lives on, though the call that made it may not have ended yet.
  const auto child = making_.lock();
  if (child && child->phase() == Phase::kInitialising) child->abort();
}

bool Communicator::wait_for_visitors(std::chrono::steady_clock::time_point deadline) const {
  while (visitors_.load() > 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

void Communicator::end_executor() {
  std::unique_ptr<Executor> last;  // ends without the lock, which its reports would take
  const std::lock_guard lock(executor_mutex_);
  last = std::move(executor_);
  order_ = StreamOrder();
}

/// Whatever goes wrong with it, without memory say, the steps behind it are taken.
template <class Step>
void Communicator::attempt(Step&& step) const noexcept {
  try {
    step();
  } catch (const std::exception& error) {
    try {
      log_info(Subsystem::kDestroy, "{}: while the communicator was torn down: {}", name_in_log(), error.what());
    } catch (const std::exception&) {
    }
  }
}

/// Whatever CUDA says: the executor ends before what it uses does.
void Communicator::let_go_of_operations(std::chrono::steady_clock::time_point deadline) {
  std::optional<DeviceGuard> device;
  attempt([&] { device.emplace(device_); });
  attempt([&] { wait_until_quiet(deadline); });
  attempt([&] {
    if (!executor_) return;
    executor_->stop_reports();
    keep_until_idle(executor_->memory_of_kernels(), order_.idle_probe());
  });
  kernels_ = KernelsOfProcess();
  attempt([&] { end_executor(); });
  attempt([&] { let_go_of_idle_memory(); });
}

/// The others hear why this rank goes, but of one that has been revoked or finalised they know.
void Communicator::take_leave() {
  if (!bootstrap_ || phase_.load() == Phase::kFinalised) return;
  bootstrap_->watch(nullptr);
  if (phase_.load() == Phase::kRevoked) return bootstrap_->shutdown();
  if (phase_.load() == Phase::kInitialising || state() != ncclSuccess) return;
  bootstrap_->report_failure({rank_, ncclRemoteError, formatted("{} {}", self_description(), kAborted), true});
}

void Communicator::tear_down() {
  wait_for_background();
  const auto deadline = std::chrono::steady_clock::now() + kAbortPatience;
  // What another thread is still making, for a split say, is not to be touched before that has noticed.
  if (phase_.load() == Phase::kInitialising && !wait_for_visitors(deadline)) return;
  attempt([&] { seat_.leave(); });
  attempt([&] { take_leave(); });
  aborted_.store(true);  // nobody is to come in any more
  if (!wait_for_visitors(deadline)) return;
  let_go_of_operations(deadline);
  attempt([&] { leave_desk(); });
  strict_board_.reset();  // the handle keeps this object for a while, but not descriptors and memory
  handles_.reset();
  bootstrap_.reset();
  const Phase phase = phase_.load();
  if (phase == Phase::kInitialising) return;
  const char* const step = phase == Phase::kFinalised ? "Destroy" : "Abort";
  attempt([&] { log_completion(Subsystem::kInit | Subsystem::kDestroy, step); });
}

}  // namespace nitinol
