// How a rank hears of failures, passes them on to its neighbours in the tree, and tells whoever watches.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "base/error.h"
#include "bootstrap/tree.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPatienceAtTheEnd = 100ms;  // of the process
constexpr auto kBetweenLooks = 200ms;      // whether a rank that is gone is needed

}  // namespace

void Tree::prepare_last_words_locked() {
  const auto word_of = [](const Failure& failure) {
    const Frame frame = control_frame(FrameType::kFail, encode(failure));
    return std::make_shared<const std::vector<std::byte>>(encode_frame(frame));
  };
  const std::string name = own_name_locked();
  lack_ = {rank_, ncclRemoteError, formatted("{} failed: out of memory: {}", name, std::strerror(ENOMEM))};
  word_of_lack_ = word_of(lack_);
  const std::string end = formatted("{} exited without ncclCommDestroy or ncclCommAbort", name);
  word_of_end_ = word_of({rank_, ncclRemoteError, end, Parting::kDeparted});
  for (const auto& [rank, neighbour] : neighbours_) {
    if (neighbour.connection) neighbour.connection->keep_last_word(word_of_lack_);
  }
}

Failure Tree::failure_of(const Link& link, const Ending& ending) const {
  const std::lock_guard lock(mutex_);
  if (ending.closed_here) {
    return {rank_, ncclSystemError,
            formatted("{} closed its connection to rank {}{}", own_name_locked(), link.rank, ending.reason)};
  }
  return {link.rank, ncclRemoteError,
          formatted("{} exited or closed its connection{}", name_locked(link.rank), ending.reason), Parting::kLost};
}

void Tree::on_closed(const LinkPointer& link, const Ending& ending) {
  if (link->rank < 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (neighbours_.at(link->rank).gone || shut_down_) return;
    has_lost_neighbour_ = has_lost_neighbour_ || (!failure_ && !ending.closed_here);
  }
  try {
    spread(failure_of(*link, ending), link->rank);
  } catch (const std::bad_alloc&) {
    report_lack_of_memory();
  }
  // Not before: who finds it gone without a failure takes it for a proper leave.
  const std::lock_guard lock(mutex_);
  neighbours_.at(link->rank).gone = true;
  changed_.notify_all();
}

/// The first failure counts. A parting is none until somebody needs who has gone, so it counts besides; but what others
/// say of a rank that is known to be gone, as what they called without it has failed, does not.
bool Tree::is_news_locked(int of_rank) const {
  if (shut_down_ || is_over_locked()) return false;
  if (!failure_) return true;
  return std::none_of(gone_.begin(), gone_.end(), [&](const Failure& gone) { return gone.rank == of_rank; });
}

void Tree::spread(const Failure& failure, int except) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (!is_news_locked(failure.rank)) return;
    first = !failure_;
    try {
      tell_locked(failure, except);
    } catch (const std::bad_alloc&) {
      tell_lack_locked(except);
    }
    changed_.notify_all();
  }
  if (const Failure* const end = this->end()) return call_back(*end);
  if (first) look_for_need();
}

// Sent before anybody here can know of it: a thread that does may end the process, and its end must not look like the
// first cause to the others.
void Tree::tell_locked(const Failure& failure, int except) {
  std::optional<Failure> kept = failure;
  Failure gone = failure;
  gone_.reserve(gone_.size() + 1);
  pass_on_locked(control_frame(FrameType::kFail, encode(failure)), except);
  const bool parts = failure.parting != Parting::kFailed;
  if (parts) gone_.push_back(std::move(gone));
  if (!failure_) {
    failure_ = std::move(kept);
  } else if (!parts) {
    end_ = std::move(kept);
  }
}

/// What ended the communicator, which no longer changes; null: nothing has.
const Failure* Tree::end() const {
  const std::lock_guard lock(mutex_);
  return is_over_locked() ? &*failure_locked() : nullptr;
}

void Tree::pass_on_locked(const Frame& frame, int except) {
  for (const auto& [rank, neighbour] : neighbours_) {
    if (rank != except && neighbour.connection && !neighbour.gone) neighbour.connection->send(frame);
  }
}

/// Whom that does not reach either sees at least that this rank is lost.
void Tree::tell_lack_locked(int except) noexcept {
  for (const auto& [rank, neighbour] : neighbours_) {
    if (rank == except || !neighbour.connection || neighbour.gone) continue;
    if (!neighbour.connection->send_at_once(*word_of_lack_)) neighbour.connection->close_now();
  }
  (failure_ ? end_ : failure_) = std::move(lack_);
}

void Tree::report_lack_of_memory() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!is_news_locked(rank_)) return;
    tell_lack_locked(-1);
    changed_.notify_all();
  }
  call_back(*end());
}

void Tree::report_revoke() {
  const std::lock_guard lock(mutex_);
  if (is_over_locked() || shut_down_ || std::exchange(has_revoked_, true)) return;
  const Failure revoke{rank_, ncclRemoteError, formatted("{} revoked the communicator", own_name_locked())};
  pass_on_locked(control_frame(FrameType::kRevoked, encode(revoke)), -1);
}

void Tree::tell_of_awaited(const std::string& ranks) {
  const std::lock_guard lock(mutex_);
  if (failure_ || shut_down_ || (ranks.empty() && !told_of_awaited_)) return;
  const bool news = !std::exchange(told_of_awaited_, true) || ranks.empty();
  const Frame frame = control_frame(FrameType::kAwaits, encode(Failure{rank_, ncclRemoteError, ranks}));
  for (const auto& [rank, neighbour] : neighbours_) {
    // To those of the same process, of whom there may be many, it does not matter for whom.
    const bool matters = news || !are_same_process(neighbour.identity, self_);
    if (matters && neighbour.connection && !neighbour.gone) neighbour.connection->send(frame);
  }
}

// One is enough to know: all ranks may revoke it at the same time.
void Tree::on_revoked(const Failure& revoke, int from) {
  const std::lock_guard lock(mutex_);
  if (revoke_ || shut_down_) return;
  revoke_ = revoke;
  pass_on_locked(control_frame(FrameType::kRevoked, encode(revoke)), from);
  changed_.notify_all();
}

void Tree::call_back(const Failure& failure) {
  if (told_) return;  // by the callback itself perhaps, which has the lock
  const std::lock_guard lock(callback_mutex_);
  if (!callback_ || told_.exchange(true)) return;
  callback_(failure);
}

/// From now on it is asked again and again whether the watcher needs one of those that are gone.
void Tree::look_for_need() {
  {
    const std::lock_guard lock(callback_mutex_);
    if (!callback_ || std::exchange(looks_for_need_, true)) return;
  }
  look_after(options_.grace_of_gone);
}

/// Tells the watcher if it needs one of those that are gone; false if it is to be asked again.
bool Tree::tell_who_needs() {
  const std::lock_guard lock(callback_mutex_);
  looks_for_need_ = callback_ && !told_;
  if (!looks_for_need_) return true;
  std::vector<Failure> gone;
  const Failure* needed = &*failure_;
  try {
    gone = this->gone();
    if (needs_others_) needed = needs_others_(gone);
  } catch (const std::exception&) {  // it cannot be known
  }
  if (needed == nullptr) return false;
  told_ = true;
  callback_(*needed);
  return true;
}

/// The watcher is told at once where there is no memory to remember it.
void Tree::look_after(std::chrono::milliseconds delay) {
  const auto call_back = [weak = weak_from_this()] {
    if (const auto tree = weak.lock()) tree->call_back(*tree->failure_);
  };
  const auto look = [weak = weak_from_this()] {
    const auto tree = weak.lock();
    if (tree && !tree->tell_who_needs()) tree->look_after(kBetweenLooks);
  };
  try {
    Network::instance().reactor().post([look, call_back, delay] {
      try {
        Network::instance().reactor().run_after(delay, look);
      } catch (const std::bad_alloc&) {
        call_back();
      }
    });
  } catch (const std::bad_alloc&) {
    call_back();
  }
}

void Tree::watch(FailureCallback callback, NeedsOthers needs_others) {
  const bool watches = static_cast<bool>(callback);
  {
    const std::lock_guard lock(callback_mutex_);
    callback_ = std::move(callback);
    needs_others_ = std::move(needs_others);
    told_ = false;
  }
  if (!watches) return;
  if (const Failure* const end = this->end()) return call_back(*end);
  if (failure()) look_for_need();
}

std::vector<Failure> Tree::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

bool Tree::hears_of(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto is_gone = [&](int other) {
    return std::any_of(gone_.begin(), gone_.end(), [&](const Failure& gone) { return gone.rank == other; });
  };
  for (int hop = rank_; hop != rank; hop = shape_.next_hop(hop, rank)) {
    if (hop != rank_ && is_gone(hop)) return false;
  }
  return true;
}

std::optional<Failure> Tree::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_locked();
}

void Tree::fail_operation(const Failure& failure) {
  if (!this->failure()) report(failure);  // that somebody is gone may be the cause, and no failure to others
  const Failure first = this->failure().value_or(failure);
  throw Error(first.result, first.sentence);
}

void Tree::on_end_of_process() noexcept {
  // A thread that will never let go of it, as this one came out of a signal's handler, is not waited for.
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (const auto begin = Clock::now(); !lock && Clock::now() - begin < kPatienceAtTheEnd;) {
    std::this_thread::sleep_for(1ms);
    static_cast<void>(lock.try_lock());
  }
  if (!lock || !is_news_locked(rank_) || has_revoked_) return;
  for (const auto& [rank, neighbour] : neighbours_) {
    if (are_same_process(neighbour.identity, self_) || !neighbour.connection || neighbour.gone) continue;
    neighbour.connection->send_if_free(*word_of_end_);
  }
}

}  // namespace nitinol
