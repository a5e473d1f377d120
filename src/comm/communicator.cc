#include "comm/communicator.h"

#include <chrono>

#include "base/log.h"
#include "base/settings.h"
#include "base/thread_name.h"
#include "device/guards.h"

namespace nitinol {
namespace {

/// The sum of what the user allows: environment and configuration.
Rules make_rules(const Config& config) {
  Rules rules = Rules::any();
  if (const auto text = settings().text_if_set(Setting::kAlgo)) restrict_algorithms(*text, rules);
  if (const auto text = settings().text_if_set(Setting::kProto)) restrict_protocols(*text, rules);
  rules.reproducible = settings().flag(Setting::kReproducible);
  rules.min_channels = config.min_ctas;
  rules.max_channels = config.max_ctas;
  return rules;
}

bool is_fatal(ncclResult_t code) { return code != ncclInvalidArgument; }

constexpr std::chrono::milliseconds kAbortPatience{2000};

}  // namespace

Communicator::Communicator(int device, Config config)
    : device_(device), config_(std::move(config)), rules_(make_rules(config_)) {}

Communicator::~Communicator() {
  if (background_.joinable()) {
    abort();
    background_.join();
  }
}

void Communicator::require_ready(const char* function) const {
  const ncclResult_t now = state();
  if (now != ncclSuccess && now != ncclInProgress) {
    const std::lock_guard lock(failure_mutex_);
    fail(now, "{}: the communicator has failed: {}", function, failure_);
  }
  switch (phase_.load(std::memory_order_acquire)) {
    case Phase::kInitialising: fail(ncclInProgress, "{}: the communicator is still being initialised", function);
    case Phase::kFinalising:
    case Phase::kFinalised: fail(ncclInvalidArgument, "{}: the communicator has been finalized", function);
    case Phase::kReady: break;
  }
  if (now == ncclInProgress)
    fail(ncclInProgress, "{}: an earlier call on the communicator is still in progress", function);
}

void Communicator::require_initialised(const char* function) const {
  if (phase_.load(std::memory_order_acquire) == Phase::kInitialising) {
    fail(state(), "{}: the communicator is still being initialised, or failed to be", function);
  }
}

Plan Communicator::plan(const CollectiveWork& work) const {
  const Question question{.what = work.what,
                          .count = work.count,
                          .type = work.type,
                          .order_free = !reduces(work.what) || work.reduction.order_free(work.type),
                          .ranks = ranks_};
  return choose(question, limits_, rules_);
}

void Communicator::submit(Launch launch, const std::vector<cudaStream_t>& streams) {
  const DeviceGuard device(device_);
  try {
    if (ranks_ > 1) {
      for (CollectiveWork& work : launch.collectives) work.plan = plan(work);
      executor_->prepare(launch);
    }
    order_.run(streams, [&](cudaStream_t stream) { executor_->launch(std::move(launch), stream); });
  } catch (const Error& error) {
    if (is_fatal(error.code())) fail_with(error.code(), error.what(), true);
    throw;
  }
}

void Communicator::fail_with(ncclResult_t code, const std::string& sentence, bool tell_others) {
  {
    const std::lock_guard lock(failure_mutex_);
    const ncclResult_t now = state_.load(std::memory_order_relaxed);
    if (now != ncclSuccess && now != ncclInProgress) return;
    failure_ = sentence;
    state_.store(code, std::memory_order_release);
  }
  log_warn("rank {}: {}", rank_, sentence);
  {
    const std::lock_guard lock(executor_mutex_);
    if (executor_) executor_->abort();
  }
  if (tell_others && bootstrap_ && phase_.load() != Phase::kInitialising) {
    bootstrap_->report_failure({rank_, ncclRemoteError, format("rank {} failed: {}", rank_, sentence)});
  }
}

void Communicator::run_in_background(std::function<void()> work) {
  wait_for_background();
  ncclResult_t idle = ncclSuccess;
  state_.compare_exchange_strong(idle, ncclInProgress, std::memory_order_acq_rel);
  background_ = std::thread([this, work = std::move(work)] {
    set_thread_name("NitinolJob");
    try {
      work();
      ncclResult_t busy = ncclInProgress;
      state_.compare_exchange_strong(busy, ncclSuccess, std::memory_order_acq_rel);
    } catch (const Error& error) {
      fail_with(error.code(), error.what(), false);
    } catch (const std::exception& error) {
      fail_with(ncclInternalError, error.what(), false);
    }
  });
}

void Communicator::wait_for_background() {
  if (background_.joinable()) background_.join();
}

void Communicator::begin_finalise() {
  phase_.store(Phase::kFinalising, std::memory_order_release);
  const DeviceGuard device(device_);
  order_.wait_idle();
}

void Communicator::finish_finalise() {
  if (state() == ncclSuccess || state() == ncclInProgress) {
    bootstrap_->barrier();
    bootstrap_->watch(nullptr);
    bootstrap_->shutdown();
  }
  phase_.store(Phase::kFinalised, std::memory_order_release);
}

void Communicator::abort() {
  aborted_.store(true, std::memory_order_release);
  const std::lock_guard lock(executor_mutex_);
  if (executor_) executor_->abort();
}

void Communicator::tear_down() {
  wait_for_background();
  if (bootstrap_ && phase_.load() != Phase::kFinalised) {
    bootstrap_->watch(nullptr);
    if (phase_.load() != Phase::kInitialising && state() == ncclSuccess) {
      bootstrap_->report_failure({rank_, ncclRemoteError, format("rank {} aborted its communicator", rank_)});
    }
  }
  try {
    const DeviceGuard device(device_);
    const auto deadline = std::chrono::steady_clock::now() + kAbortPatience;
    while (!order_.idle() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    const std::lock_guard lock(executor_mutex_);
    executor_.reset();
    order_ = StreamOrder();
  } catch (const Error& error) {
    log_info(Subsystem::kDestroy, "rank {}: while the communicator was torn down: {}", rank_, error.what());
  }
  handles_.reset();
  bootstrap_.reset();
}

}  // namespace nitinol
