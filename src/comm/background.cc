// Calls that go on in a communicator's background thread, and how they end.
#include <mutex>
#include <utility>

#include "base/blocked_signals.h"
#include "base/thread_name.h"
#include "comm/communicator.h"
#include "device/guards.h"

namespace nitinol {

void Communicator::run_in_background(std::function<void()> work, Awaits awaits) {
  const std::lock_guard lock(background_mutex_);
  if (background_.joinable()) background_.join();
  if (aborted_.load()) fail(ncclInvalidUsage, "rank {}: the communicator was aborted", rank_);
  background_awaits_.store(awaits);
  regroups_.store(awaits == Awaits::kRanks && was_revoked(phase()));
  ncclResult_t idle = ncclSuccess;
  state_.compare_exchange_strong(idle, ncclInProgress, std::memory_order_acq_rel);
  const auto run = [this, work = std::move(work)] {
    set_thread_name("NitinolJob");
    try {
      settle_on(device_);
      work();
    } catch (const std::exception& thrown) {
      fail_because(thrown);
    }
    regroups_.store(false);
    end_progress();  // also of one that was revoked, which nothing fails any more
  };
  try {
    const BlockedSignals blocked;
    background_ = std::thread(run);
  } catch (const std::exception& thrown) {  // whoever polls is not to wait for it
    regroups_.store(false);
    const std::string sentence =
        formatted("rank {}: no thread for a non-blocking call: {}", rank_, sentence_of(thrown));
    fail_with(ncclSystemError, sentence, true);
    fail(ncclSystemError, "{}", sentence);
  }
}

void Communicator::end_progress() {
  const std::lock_guard lock(failure_mutex_);
  if (phase_.load(std::memory_order_acquire) == Phase::kRevoking) return;
  ncclResult_t busy = ncclInProgress;
  state_.compare_exchange_strong(busy, ncclSuccess, std::memory_order_acq_rel);
}

void Communicator::wait_for_background() {
  const std::lock_guard lock(background_mutex_);
  if (background_.joinable()) background_.join();
}

void Communicator::throw_if_stopped() const {
  if (!stopped_.load()) return;
  throw_failure();
  fail(ncclRemoteError, "rank {} {} its communicator", rank_, aborted_.load() ? "aborts" : "revokes");
}

}  // namespace nitinol
