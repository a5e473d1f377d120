// How a rank waits for its neighbours in the tree: for how long, and whom it blames, in what words.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bootstrap/long_wait.h"
#include "bootstrap/tree.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kSlice = 100ms;
constexpr auto kGracePerLevel = 250ms;
constexpr auto kPatienceWithStopped = 2s;  // of ranks in a hurry
constexpr auto kPatienceWithFailed = 1s;   // or revoked: until what it has to say is here

/// Later operations have the time of the communicator's.
bool is_of_set_up(Operation operation) {
  return operation == Operation::kBarrier || operation == Operation::kBroadcast || operation == Operation::kAllGather;
}

}  // namespace

Deadline Tree::operation_deadline(Operation operation) const {
  constexpr std::chrono::hours kForEver{24 * 365};
  // Who compares calls is in an operation, which may take as long as others need to come to it.
  const bool waits_for_ever = operation == Operation::kCompare && operation_timeout_.load().count() == 0;
  return Clock::now() + (waits_for_ever ? kForEver : operation_timeout());
}

/// The setting that ends a wait. What compares calls has no other end.
const char* Tree::name_of_timeout(Operation operation) const {
  const bool is_of_init = operation != Operation::kCompare && operation_timeout() == options_.init_timeout;
  return is_of_init ? "NITINOL_INIT_TIMEOUT" : "NITINOL_TIMEOUT";
}

/// Tells once in the log of a wait, and returns whether this is when: the lock has been let go then, as the network
/// thread is not to wait for the log.
template <typename Words>
bool Tree::warn_if_long(std::unique_lock<std::mutex>& lock, Operation operation, Wait& wait, const Words& words) const {
  const auto after = options_.warn_after;
  if (wait.warned || after.count() == 0 || wait.so_far() < after) return false;
  wait.warned = true;
  tell_of_wait([&] {
    std::string told =
        formatted("still waiting ({} ends such waits): {}", name_of_timeout(operation), words(wait.so_far()));
    lock.unlock();
    return told;
  });
  if (!lock.owns_lock()) lock.lock();
  return true;
}

// False: the deadline has passed.
bool Tree::wait_slice(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  const auto now = Clock::now();
  if (now >= deadline) return false;
  changed_.wait_until(lock, std::min(deadline, now + kSlice));
  return true;
}

void Tree::wait_for_children(Deadline deadline, const Interrupt& interrupt) {
  constexpr Operation kOperation = Operation::kNone;
  Wait wait{Clock::now(), deadline};
  std::unique_lock lock(mutex_);
  const auto missing = [this] {
    return std::find_if(neighbours_.begin(), neighbours_.end(),
                        [](const auto& entry) { return !entry.second.connection; });
  };
  while (missing() != neighbours_.end()) {
    check_locked();
    if (interrupt) {
      lock.unlock();
      interrupt();
      lock.lock();
    }
    if (missing() == neighbours_.end()) break;
    const int absent = missing()->first;
    const auto words = [&](auto waited) { return absence_locked(absent, seconds_text(waited)); };
    if (warn_if_long(lock, kOperation, wait, words) || wait_slice(lock, deadline)) continue;
    const std::string within = formatted("{} ({})", seconds_text(operation_timeout()), name_of_timeout(kOperation));
    const std::string sentence = absence_locked(absent, within);
    lock.unlock();
    fail_operation({absent, ncclRemoteError, sentence});
  }
  check_locked();
}

std::string Tree::absence_locked(int child, const std::string& within) const {
  return formatted("{} did not arrive: it did not connect to rank {} within {}{}", name_locked(child), rank_, within,
                   fate_of(neighbours_.at(child).identity));
}

std::vector<std::byte> Tree::receive(int neighbour, const OperationStep& step, Deadline deadline,
                                     const Interrupt& interrupt) {
  Wait wait{Clock::now(), deadline};
  std::unique_lock lock(mutex_);
  Neighbour& from = neighbours_.at(neighbour);
  while (from.mailbox.empty()) {
    check_locked();
    if (interrupt) {
      lock.unlock();
      interrupt();
      lock.lock();
      if (!from.mailbox.empty()) break;
    }
    if (has_left_locked(from, step)) {
      found_somebody_gone_ = true;
      return {};
    }
    wait.leave_out(wait.attendance.missed(Clock::now()));
    const bool comes = !from.gone && !is_about_to_leave(from, step);
    if (comes && !is_revoked_locked(step, wait) && !is_over_locked(neighbour, step, wait)) {
      const auto words = [&](auto waited) { return complaint_locked(neighbour, step, waited); };
      if (!warn_if_long(lock, step.operation, wait, words)) wait_slice(lock, wait.deadline);
      continue;
    }
    const Failure failure = blame_locked(neighbour, step, wait);
    lock.unlock();
    fail_operation(failure);
  }
  Frame frame = std::move(from.mailbox.front());
  from.mailbox.pop_front();
  lock.unlock();
  expect_step(frame, neighbour, step);
  return std::move(frame.payload);
}

/// Whether the neighbour takes part in nothing any more but leaving: what it sent for this step would have come before
/// word of that.
bool Tree::is_about_to_leave(const Neighbour& neighbour, const OperationStep& step) {
  return !neighbour.awaited.empty() && step.operation != Operation::kLeave;
}

/// Whether the neighbour has left properly, without having waited for all others, and this rank is about to do so. One
/// that has revoked the communicator leaves without having come.
bool Tree::has_left_locked(const Neighbour& neighbour, const OperationStep& step) const {
  return neighbour.gone && step.operation == Operation::kLeave && !revoke_;
}

/// Whether the neighbour is to be blamed now. Not as soon as the time is over: this process may have stood still, and
/// what others sent meanwhile is yet to be read.
bool Tree::is_over_locked(int neighbour, const OperationStep& step, Wait& wait) const {
  const bool given_up = given_up_locked(neighbour, step, wait);
  const auto now = Clock::now();
  if (!wait.graced && (given_up || now >= wait.deadline)) {
    wait.graced = true;
    wait.deadline = now + kSlice + (given_up ? 0ms : grace_for(neighbour));
  }
  if (now < wait.deadline) return false;
  if (given_up || !may_tell_locked(neighbour, wait)) return true;
  wait.deadline = *wait.stopped_since + kPatienceWithFailed;
  return false;
}

/// Whether the operation is to be given up since the communicator was revoked elsewhere. Ranks that have all revoked it
/// may split it however late they come; between one that has not and one that has, a split would be chance.
bool Tree::is_revoked_locked(const OperationStep& step, Wait& wait) const {
  const bool concerns = step.operation == Operation::kSplit || step.operation == Operation::kLeave;
  if (!concerns || !revoke_ || has_revoked_) return false;
  if (!wait.revoked_since) wait.revoked_since = Clock::now();
  return Clock::now() - *wait.revoked_since >= kPatienceWithFailed;
}

/// What is wrong if the neighbour is not waited for any longer.
Failure Tree::blame_locked(int neighbour, const OperationStep& step, Wait& wait) const {
  const Neighbour& from = neighbours_.at(neighbour);
  if (!from.gone && is_about_to_leave(from, step)) {
    return difference(neighbour, step, operation_text(Operation::kLeave, step.sequence));
  }
  if (!from.gone && is_revoked_locked(step, wait)) {
    return {revoke_->rank, ncclRemoteError, word_of_revoke_locked(neighbour, step)};
  }
  return {neighbour, ncclRemoteError, complaint_locked(neighbour, step, wait.so_far())};
}

/// Whether nothing is to be hoped for from a rank that is still there.
bool Tree::given_up_locked(int neighbour, const OperationStep& step, Wait& wait) const {
  const bool hurries = in_a_hurry_ && wait.so_far() >= kPatienceWithStopped;
  if (hurries && is_stopped(neighbours_.at(neighbour).identity)) return true;
  if (is_frozen_for_long_locked(neighbour, step, wait)) return true;
  if (step.operation != Operation::kCompare || !doings_ || !doings_(neighbour).stopped) return false;
  return !may_tell_locked(neighbour, wait);
}

/// Whether the ranks set a communicator up and the neighbour's process is stopped, for longer than that is waited for.
bool Tree::is_frozen_for_long_locked(int neighbour, const OperationStep& step, Wait& wait) const {
  const auto patience = options_.patience_with_stopped;
  if (patience.count() == 0 || !is_of_set_up(step.operation)) return false;
  if (!is_stopped(neighbours_.at(neighbour).identity)) {
    wait.frozen_since.reset();
    return false;
  }
  if (!wait.frozen_since) wait.frozen_since = Clock::now();
  return Clock::now() - *wait.frozen_since >= patience;
}

/// Whether the neighbour's communicator has failed, of which it says itself why: it is only to be waited for.
bool Tree::may_tell_locked(int neighbour, Wait& wait) const {
  if (!doings_ || !doings_(neighbour).stopped) return false;
  if (!wait.stopped_since) wait.stopped_since = Clock::now();
  return Clock::now() - *wait.stopped_since < kPatienceWithFailed;
}

std::string Tree::complaint_locked(int neighbour, const OperationStep& step, std::chrono::milliseconds waited) const {
  const Neighbour& from = neighbours_.at(neighbour);
  if (from.gone) {
    return formatted("{} has left the communicator while rank {} waits for it in {}", name_locked(neighbour), rank_,
                     step.text());
  }
  std::string doings = doings_ ? doings_(neighbour).text : "";
  if (!from.awaited.empty()) {
    doings = formatted("it has come, but waits for {} of its process", from.awaited);
  }
  const std::string complaint =
      formatted("rank {} waited {} ms for {} in {}{}{}{}", rank_, waited.count(), name_locked(neighbour), step.text(),
                fate_of(from.identity), doings.empty() ? "" : "; ", doings);
  if (is_stopped(from.identity)) return complaint;
  const std::string stopped = who_is_stopped_ ? who_is_stopped_() : "";
  if (!stopped.empty()) return formatted("{}; {}", complaint, stopped);
  return complaint + ": does every rank make the same calls?";
}

std::string Tree::word_of_revoke_locked(int neighbour, const OperationStep& step) const {
  return formatted("rank {} waits for {} in {}, but {}", rank_, name_locked(neighbour), step.text(), revoke_->sentence);
}

// Whoever waits for the missing rank itself is to say so first: those who wait for it only through others wait longer.
std::chrono::milliseconds Tree::grace_for(int neighbour) const {
  const auto depth_of = [this](int rank) {
    int depth = 0;
    while ((rank = shape_.parent(rank)) >= 0) ++depth;
    return depth;
  };
  const int deepest = depth_of(nranks() - 1);
  const int depth = depth_of(rank_);
  const int steps = neighbour == shape_.parent(rank_) ? deepest + depth : std::max(deepest - depth - 1, 0);
  return steps * kGracePerLevel;
}

Failure Tree::difference(int neighbour, const OperationStep& step, const std::string& theirs) const {
  return {neighbour, ncclInvalidUsage,
          formatted("ranks {} and {} do different things: rank {} is in {}, rank {} in {}; all ranks must make the "
                    "same calls in the same order",
                    rank_, neighbour, rank_, step.text(), neighbour, theirs)};
}

void Tree::expect_step(const Frame& frame, int neighbour, const OperationStep& step) {
  if (frame.operation == step.operation && frame.sequence == step.sequence) return;
  fail_operation(difference(neighbour, step, operation_text(frame.operation, frame.sequence)));
}

}  // namespace nitinol
