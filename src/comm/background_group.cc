#include "comm/background_group.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "comm/communicator.h"
#include "comm/strict_check.h"
#include "device/guards.h"
#include "diagnostics/ras/report.h"

namespace nitinol {
namespace {

/// How often a communicator that waits for the others of its group looks whether it is to end.
constexpr std::chrono::milliseconds kBetweenChecks{2};

/// The group, as the background threads of its communicators share it.
class Group {
 public:
  explicit Group(std::vector<Batch> batches);

  size_t size() const { return batches_.size(); }
  Communicator& communicator(size_t index) const { return *communicators_[index]; }
  /// What one communicator's background thread does. Throws Error if that or another one of the group fails.
  void carry_out(size_t index);
  /// One cannot go on: so none can. The first failure counts.
  void fail_others(size_t index, const std::exception& thrown) noexcept;

 private:
  void fail_self(size_t index, const std::exception& thrown) const noexcept;
  void put_into_streams(size_t index);
  void note(size_t& count);
  template <class Condition>
  void await(const Communicator& self, Condition holds);

  std::vector<Batch> batches_;                                ///< each is its own thread's
  std::vector<std::shared_ptr<Communicator>> communicators_;  ///< one that is destroyed meanwhile may still be failed
  std::atomic<bool> failed_{false};
  std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  size_t ready_ = 0;
  size_t submitted_ = 0;
};

Group::Group(std::vector<Batch> batches) : batches_(std::move(batches)) {
  for (const Batch& batch : batches_) communicators_.push_back(batch.communicator->shared_from_this());
}

void Group::note(size_t& count) {
  const std::lock_guard lock(mutex_);
  ++count;
  changed_.notify_all();
}

/// A failure of the group has failed `self`.
template <class Condition>
void Group::await(const Communicator& self, Condition holds) {
  std::unique_lock lock(mutex_);
  while (!holds()) {
    self.throw_if_stopped();
    changed_.wait_for(lock, kBetweenChecks);
  }
}

void Group::put_into_streams(size_t index) {
  Communicator& self = communicator(index);
  Batch& batch = batches_[index];
  compare_calls({&batch, 1});
  self.get_ready(batch.launch, batch.streams.front());
  note(ready_);
  await(self, [&] { return ready_ == size() && submitted_ == index; });
  self.submit(batch.launch, batch.streams);
  note(submitted_);
  await(self, [&] { return submitted_ == size(); });
}

void Group::fail_self(size_t index, const std::exception& thrown) const noexcept {
  Communicator& self = communicator(index);
  try {
    self.fail_with(code_of(thrown), sentence_of(thrown), true);
  } catch (const std::exception& lack) {
    self.fail_because(lack);
  }
}

void Group::carry_out(size_t index) {
  Communicator& self = communicator(index);
  try {
    const DeviceGuard device(self.device());
    const RelaxedCaptureGuard relaxed;  // the program may be capturing something else
    put_into_streams(index);
  } catch (const std::exception& thrown) {
    fail_self(index, thrown);
    fail_others(index, thrown);
    throw;
  }
}

/// The other ranks learn of it, but not those of a communicator that the program is revoking: they are to split or
/// shrink it together yet.
void fail_because_of(const Communicator& cause, const std::exception& thrown, Communicator& other) {
  const Communicator::Visit visit(other);
  other.fail_with(
      code_of(thrown),
      formatted("rank {}: a group was not carried out, because its communicator {} (there rank {}) failed: {}",
                other.rank(), ras::text_of(cause.identity()), cause.rank(), sentence_of(thrown)),
      !(was_revoked(cause.phase()) && cause.identity() == other.identity()));
}

void Group::fail_others(size_t index, const std::exception& thrown) noexcept {
  if (failed_.exchange(true)) return;
  for (size_t i = 0; i < size(); ++i) {
    if (i == index) continue;
    try {
      fail_because_of(communicator(index), thrown, communicator(i));
    } catch (const Error&) {  // it has been aborted, too
    } catch (const std::exception& lack) {
      communicator(i).fail_because(lack);
    }
  }
}

}  // namespace

void go_on_in_background(std::vector<Batch> batches) {
  const auto group = std::make_shared<Group>(std::move(batches));
  for (size_t i = 0; i < group->size(); ++i) {
    Communicator& communicator = group->communicator(i);
    const auto awaits = checks_strictly(communicator) ? Communicator::Awaits::kRanks : Communicator::Awaits::kNoRank;
    try {
      communicator.run_in_background([group, i] { group->carry_out(i); }, awaits);
    } catch (const std::exception& thrown) {
      group->fail_others(i, thrown);
      throw;
    }
  }
}

}  // namespace nitinol
