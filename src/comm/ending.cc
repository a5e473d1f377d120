// How a communicator comes to its end: finalised or aborted, and torn down.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

#include "base/attendance.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/communicator.h"
#include "comm/strict_circle.h"
#include "device/guards.h"

namespace nitinol {
namespace {

/// For how long operations that were stopped may begin yet, so that nothing of them is left.
constexpr std::chrono::milliseconds kTimeToBegin{100};

/// How long an abort waits for kernels and other threads to leave before it lets them be.
constexpr std::chrono::milliseconds kAbortPatience{1500};

/// How long a communicator that is destroyed waits for operations if a rank's process is stopped.
constexpr std::chrono::milliseconds kPatienceAtTheEnd{2000};

}  // namespace

void Communicator::begin_finalise(bool in_a_hurry) {
  const Visit visit(*this);
  enter(Phase::kFinalising);
  const DeviceGuard device(device_);
  if (strict_board_) strict_board_->leave();
  flush(in_a_hurry ? kPatienceAtTheEnd : std::chrono::seconds(settings().integer(Setting::kInitTimeout)));
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

bool Communicator::may_leave_alone() const { return timeout_.load().count() == 0 && !strict_board_; }

/// Others are waited for that may wait for this program, in other communicators, or come late, or are gone.
void Communicator::wait_for_leavers(bool in_a_hurry) {
  using Clock = std::chrono::steady_clock;
  std::optional<StrictCircle> waits;
  if (strict_board_) waits.emplace(*this);
  const auto deadline = Clock::now() + patience_with_leavers();
  auto needed = Clock::now();
  const auto is_needed = [&] {
    if (executor_->is_needed()) needed = Clock::now();
    return Clock::now() - needed < kPatienceTogether;
  };
  std::function<bool()> goes_alone;
  if (may_leave_alone()) goes_alone = [&] { return !is_needed(); };
  if (bootstrap_->last_barrier(in_a_hurry, goes_alone) || bootstrap_->has_gone_rank()) return;
  while (is_needed() && Clock::now() < deadline && !aborted_.load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void Communicator::finish_finalise(bool in_a_hurry) {
  const Visit visit(*this);
  if (state() == ncclSuccess || state() == ncclInProgress) {
    bootstrap_->tell_of_awaited("");
    wait_for_leavers(in_a_hurry);
    const bool can_compare = !bootstrap_->has_gone_rank();
    bootstrap_->watch(nullptr);
    bootstrap_->shutdown();
    const auto difference = can_compare ? executor_->difference_in_the_end() : std::nullopt;
    if (difference) fail(ncclInvalidUsage, "{}", *difference);
  }
  enter(Phase::kFinalised);
}

void Communicator::expect_end() {
  ending_.store(true);
  // What is under way may reach for memory of a process that is stopped.
  if (phase() == Phase::kReady) handles_->set_patience(kPatienceAtTheEnd);
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
  order_ = order_.anew();
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
  std::optional<KeepUntilIdle> memory;
  attempt([&] { device.emplace(device_); });
  // What was finalised is through; graphs may run on.
  if (phase_.load() != Phase::kFinalised || stopped_.load()) attempt([&] { wait_until_quiet(deadline); });
  attempt([&] {
    if (!executor_) return;
    executor_->stop_reports();
    memory.emplace(executor_->memory_of_kernels(), order_.idle_probe());
  });
  kernels_ = KernelsOfProcess();
  attempt([&] { end_executor(); });
  memory.reset();
  attempt([&] { let_go_of_idle_memory(); });
}

/// The others hear why this rank goes, but of one that has been revoked or finalised they know.
void Communicator::take_leave() {
  if (!bootstrap_) return;
  bootstrap_->watch(nullptr);  // its callback uses what goes next
  if (phase_.load() == Phase::kFinalised) return;
  if (phase_.load() == Phase::kRevoked) return bootstrap_->shutdown();
  if (phase_.load() == Phase::kInitialising || state() != ncclSuccess) return;
  bootstrap_->report_failure(
      {rank_, ncclRemoteError, formatted("{} {}", self_description(), kAborted), Parting::kDeparted});
}

void Communicator::say_goodbye() {
  attempt([&] { seat_.leave(); });
  attempt([&] { take_leave(); });
  aborted_.store(true);  // nobody is to come in any more
}

void Communicator::tear_down() {
  wait_for_background();
  const auto deadline = std::chrono::steady_clock::now() + kAbortPatience;
  // What another thread is still making, for a split say, is not to be touched before that has noticed.
  if (phase_.load() == Phase::kInitialising && !has_to_itself(deadline)) return;
  say_goodbye();
  if (has_to_itself(deadline)) let_go_of_all(deadline);
}

bool Communicator::has_to_itself(std::chrono::steady_clock::time_point deadline) {
  if (wait_for_visitors(deadline)) return true;
  unsigned visitors = visitors_.load();
  while (visitors != 0) {
    if (visitors_.compare_exchange_weak(visitors, visitors | kLeftToVisitors)) return false;
  }
  return true;
}

/// Whoever comes in meanwhile, and is refused, is the last instead.
void Communicator::tear_down_as_last() noexcept {
  const auto kept = weak_from_this().lock();  // the handle lets it go once there are no visitors
  unsigned nobody = kLeftToVisitors;
  if (!visitors_.compare_exchange_strong(nobody, 0)) return;
  say_goodbye();
  let_go_of_all(std::chrono::steady_clock::now() + kAbortPatience);
}

void Communicator::let_go_of_all(std::chrono::steady_clock::time_point deadline) {
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
