#include "comm/communicator.h"

#include <unistd.h>

#include <chrono>

#include "base/host.h"
#include "base/last_error.h"
#include "base/log.h"
#include "base/settings.h"
#include "bootstrap/regroup_desk.h"
#include "device/guards.h"
#include "executor/simulate/estimate.h"
#include "model/signature.h"

namespace nitinol {
namespace {

/// "in AllReduce (count 5, ...): ", to be put before what went wrong with the launch.
std::string context_of(const Launch& launch) {
  if (!launch.collectives.empty()) return formatted("in {}: ", Signature::of(launch.collectives.front(), 0).text());
  if (launch.messages.empty()) return "";
  const MessageWork& first = launch.messages.front();
  const MessageSignature signature{.bytes = first.bytes, .type = first.stated};
  return formatted("in {}: ", signature.text(first.is_send(), first.peer));
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

/// How long word of a failure may take from the rank that noticed it.
constexpr std::chrono::milliseconds kFailurePatience{500};

}  // namespace

Communicator::Communicator(int device, Config config, const char* made_by)
    : device_(device),
      config_(std::move(config)),
      made_by_(made_by),
      wishes_(own_wishes(config_)),
      order_(settings().flag(Setting::kGraphMixingSupport)) {}

Communicator::~Communicator() {
  if (background_.joinable()) {
    abort();
    background_.join();
  }
}

Communicator::Visit::Visit(Communicator& communicator, Needs needs)
    : communicator_(communicator), needs_all_(needs == Needs::kAllRanks) {
  communicator_.require_own("a call that was begun before a fork");
  communicator_.visitors_.fetch_add(1);
  if (needs_all_) communicator_.calls_begun_.fetch_add(1);
  if (!communicator_.aborted_.load()) return;
  leave();
  fail(ncclInvalidUsage, "rank {}: the communicator was destroyed or aborted meanwhile", communicator_.rank_);
}

/// The communicator may go as soon as nobody visits it.
void Communicator::Visit::leave() {
  if (needs_all_) communicator_.calls_ended_.fetch_add(1);
  if (communicator_.visitors_.fetch_sub(1) == kLeftToVisitors + 1) communicator_.tear_down_as_last();
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
  communicator_.waits_in_.store(call);
  const std::lock_guard lock(communicator_.executor_mutex_);
  if (communicator_.executor_) communicator_.executor_->wait_on_host(call, ranks_);
}

void Communicator::announce(const CollectiveWork* next) {
  waits_to_call_.store(next != nullptr ? name_of(next->what) : nullptr);
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

Plan Communicator::plan_or_repeat(const CollectiveWork& work) {
  const Question question = question_of(work, ranks_);
  if (question != last_question_) {
    last_plan_ = choose(question, limits_, rules_);
    last_question_ = question;
  }
  return last_plan_;
}

template <class PlanOf>
void Communicator::plan(Launch& launch, PlanOf&& plan_of) const {
  if (ranks_ == 1) return;
  if (!executor_->follows_empty_collectives()) {
    std::erase_if(launch.collectives, [](const CollectiveWork& work) { return work.count == 0; });
  }
  for (CollectiveWork& work : launch.collectives) {
    if (work.count == 0) continue;
    work.plan = plan_of(work);
  }
}

bool Communicator::plan_and_prepare(Launch& launch, cudaStream_t stream, IfNotReady otherwise) {
  plan(launch, [this](const CollectiveWork& work) { return plan_or_repeat(work); });
  if (executor_->is_ready_for(launch)) return true;
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

/// Beside others' calls, whose plans are kept.
void Communicator::plan_to_estimate(Launch& launch) {
  const Visit visit(*this);
  require_not_finalised(launch);
  plan(launch, [this](const CollectiveWork& work) { return choose(question_of(work, ranks_), limits_, rules_); });
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
  const Visit visit(*this, Needs::kAllRanks);
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
    if (cause.code() == ncclRemoteError && !stopped_here) throw_first_failure(cause.what());
    const Error error(cause.code(), context_of(launch) + cause.what());
    if (is_fatal(error.code())) fail_with(error.code(), error.what(), true);
    throw error;
  } catch (const std::bad_alloc& lack) {
    fail_because(lack);
    throw;
  }
}

void Communicator::throw_first_failure(const std::string& sentence) {
  const auto deadline = std::chrono::steady_clock::now() + kFailurePatience;
  for (bool last = false;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    if (const auto first = cause_of(sentence)) {
      fail_because_of(*first);  // of a rank that is gone the failure watch may say nothing
      fail(first->result, "{}", first->sentence);
    }
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

bool Communicator::become_failed(ncclResult_t code, const std::string& sentence, bool is_last_error) {
  const std::lock_guard lock(failure_mutex_);
  const ncclResult_t now = state_.load(std::memory_order_relaxed);
  if (now != ncclSuccess && now != ncclInProgress) return false;
  if (was_revoked(phase())) return false;  // nothing runs that could fail
  try {
    failure_sentence_ = sentence;
    failure_text_.store(failure_sentence_.c_str(), std::memory_order_release);
    if (is_last_error) {  // programs may look for both, or end, as soon as they see the state
      const std::string in_log = failure_in_log(sentence);
      set_last_error(in_log);
      const DeviceInLog device(device_);
      failure_logged_ = log_note_at_once(in_log);
    }
  } catch (const std::bad_alloc&) {  // who polls is not to poll for ever
    if (failure_text_.load() == nullptr) failure_text_.store("out of memory", std::memory_order_release);
  }
  state_.store(code, std::memory_order_release);
  return true;
}

/// Some sentences begin with the rank: those that were made to be told others as well.
std::string Communicator::failure_in_log(const std::string& sentence) const {
  const std::string beginning = name_in_log() + ": ";
  return sentence.starts_with(beginning) ? sentence : beginning + sentence;
}

/// What the thread that makes it writes is not looked at: that need not know its rank yet.
void Communicator::give_up(const Error& error) {
  static_cast<void>(become_failed(error.code(), error.what(), false));
  abort();
}

/// What the log did not take at once comes last: whoever reads it may keep it waiting.
void Communicator::fail_with(ncclResult_t code, const std::string& sentence, bool tell_others) {
  const bool aborted = aborted_.load();  // an abort that follows is because of this failure
  if (!become_failed(code, sentence, true)) return;
  stop_operations();
  if (tell_others && bootstrap_ && phase_.load() != Phase::kInitialising) tell(*bootstrap_, code, sentence, aborted);
  seat_.note_failure();
  if (failure_logged_) return;
  try {
    const DeviceInLog device(device_);
    log_note("{}", failure_in_log(sentence));
  } catch (const std::bad_alloc&) {  // it is told where it is asked for
  }
}

/// `aborted`: before, which then is the cause, and no failure of its own.
void Communicator::tell(Bootstrap& bootstrap, ncclResult_t code, const std::string& sentence, bool aborted) noexcept {
  try {
    const ncclResult_t told = code == ncclInvalidUsage && !aborted ? code : ncclRemoteError;
    const char* const what = aborted ? kAborted : "failed";
    // Who fails only as others are gone fails nobody that needs none of them.
    const bool parts = code == ncclRemoteError && bootstrap.has_gone_rank();
    bootstrap.report_failure({rank_, told, formatted("{} {}: {}", self_description(), what, sentence),
                              parts ? Parting::kDeparted : Parting::kFailed});
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

/// Not once it is revoked, as by a call behind one that goes on in the background: what was revoked stays so.
void Communicator::enter(Phase next) {
  const std::lock_guard lock(failure_mutex_);
  if (was_revoked(phase())) fail(ncclRemoteError, "rank {} revokes its communicator", rank_);
  phase_.store(next, std::memory_order_release);
}

}  // namespace nitinol
