// The event loop.
#include "bootstrap/reactor.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <thread>

#include "base/blocked_signals.h"
#include "base/error.h"

namespace nitinol {
namespace {

constexpr Reactor::Token kWakeToken = 0;
constexpr std::size_t kScratchBytes = 128 * 1024;
constexpr std::chrono::milliseconds kPauseWithoutEvents{10};
// A program may close the descriptor that wakes the thread, or the one it waits for: so the thread looks by itself.
constexpr std::chrono::milliseconds kLongestSleep{1000};
// A round sees up to 64 descriptors, and brings a connection one step further.
constexpr int kMostRoundsBeforeTimers = 64;

// What runs on the thread can throw for lack of memory or descriptors. The peer in question is then not served any
// more, and deadlines tell whoever waits for it; the others go on.
template <typename Function, typename... Arguments>
void run_guarded(const Function& function, Arguments... arguments) {
  try {
    function(arguments...);
  } catch (const std::exception&) {
  }
}

void control(int epoll, int operation, int fd, std::uint32_t events, Reactor::Token token) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  if (epoll_ctl(epoll, operation, fd, &event) != 0) fail_errno(errno, "epoll_ctl of the bootstrap's network thread");
}

}  // namespace

Reactor::Reactor() : scratch_(kScratchBytes) {
  epoll_ = GuardedFd(UniqueFd(epoll_create1(EPOLL_CLOEXEC)));
  if (!epoll_) fail_errno(errno, "epoll_create1 for the bootstrap's network thread");
  control(epoll_.get(), EPOLL_CTL_ADD, waker_.fd(), EPOLLIN, kWakeToken);
}

Reactor::~Reactor() = default;

void Reactor::start() {
  const BlockedSignals blocked;
  try {
    std::thread([this] {
      pthread_setname_np(pthread_self(), "nitinol-net");
      run();
    }).detach();
  } catch (const std::system_error& error) {
    fail(ncclSystemError, "cannot start the bootstrap's network thread: {}", error.what());
  }
}

void Reactor::post(std::function<void()> function) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = posted_.empty() && !leavers_;
    posted_.push_back(std::move(function));
  }
  if (first) waker_.wake();
}

void Reactor::ask_to_leave(std::shared_ptr<Leaver> leaver) noexcept {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(leaver->is_asked_, true)) return;
    first = posted_.empty() && !leavers_;
    leaver->next_ = std::move(leavers_);
    leavers_ = std::move(leaver);
  }
  if (first) waker_.wake();
}

Reactor::Token Reactor::add(int fd, std::uint32_t events, std::function<void(std::uint32_t)> callback) {
  const Token token = next_name_++;
  auto shared = std::make_shared<std::function<void(std::uint32_t)>>(std::move(callback));
  registrations_.emplace(token, Registration{fd, std::move(shared)});
  try {
    control(epoll_.get(), EPOLL_CTL_ADD, fd, events, token);
  } catch (const std::exception&) {
    registrations_.erase(token);
    throw;
  }
  return token;
}

void Reactor::modify(Token token, int fd, std::uint32_t events) {
  control(epoll_.get(), EPOLL_CTL_MOD, fd, events, token);
}

void Reactor::remove(Token token, int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  registrations_.erase(token);
}

Reactor::Timer Reactor::run_after(std::chrono::milliseconds delay, std::function<void()> function) {
  const Timer timer{Clock::now() + delay, next_name_++};
  timers_.emplace(timer, std::move(function));
  return timer;
}

void Reactor::cancel(const Timer& timer) { timers_.erase(timer); }

void Reactor::run_posted() {
  std::vector<std::function<void()>> functions;
  std::shared_ptr<Leaver> leavers;
  {
    const std::lock_guard lock(mutex_);
    functions.swap(posted_);
    leavers.swap(leavers_);
  }
  for (const auto& function : functions) run_guarded(function);
  run_leavers(std::move(leavers));
}

void Reactor::run_leavers(std::shared_ptr<Leaver> first) {
  while (first) {
    std::shared_ptr<Leaver> next;
    {
      const std::lock_guard lock(mutex_);
      next = std::move(first->next_);
      first->is_asked_ = false;  // it may be asked once more while it leaves
    }
    run_guarded([&] { first->leave(); });
    first = std::move(next);
  }
}

std::chrono::milliseconds Reactor::time_to_timer(Clock::time_point now) const {
  if (timers_.empty()) return kLongestSleep;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first.first - now);
  return std::clamp(left, std::chrono::milliseconds::zero(), kLongestSleep);
}

void Reactor::run_timers(Clock::time_point now) {
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const auto first = timers_.begin();
    const auto function = std::move(first->second);
    timers_.erase(first);
    run_guarded(function);
  }
}

void Reactor::stop() {
  stopping_.store(true);
  waker_.wake();
}

bool Reactor::run_events(std::chrono::milliseconds timeout) {
  std::array<epoll_event, 64> events;
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), static_cast<int>(timeout.count()));
  if (count < 0 && errno != EINTR) {  // the program has closed what is not its own
    std::this_thread::sleep_for(kPauseWithoutEvents);
    next_look_ = std::min(next_look_, Clock::now());
  }
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const Token token = event.data.u64;  // a copy: the system's struct is packed
    if (token == kWakeToken) {
      waker_.calm();
      continue;
    }
    run_callback(token, event.events);
  }
  return count > 0;
}

void Reactor::run_callback(Token token, std::uint32_t events) {
  const auto found = registrations_.find(token);
  if (found == registrations_.end()) return;
  const auto callback = found->second.callback;
  run_guarded(*callback, events);
}

// To add what is there already is refused (EEXIST). By that alone it can be told whether a number stands for the same
// file.
bool Reactor::is_watched(int fd) const noexcept {
  epoll_event none{};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &none) != 0) {
    return errno != EBADF && errno != EINVAL && errno != EPERM;  // none, no epoll, and a file that cannot be waited for
  }
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  return false;
}

void Reactor::tell_of_closed_descriptors() {
  const bool whole = is_whole();
  std::vector<Token> closed;
  for (const auto& [token, registration] : registrations_) {
    if (!whole || !is_watched(registration.fd)) closed.push_back(token);
  }
  for (const Token token : closed) run_callback(token, whole ? kClosed : kBlind);
}

// The process may have stood still past a timer's time while what would have cancelled the timer came in: whatever was
// there by the time that timers are measured by has been seen when they run, unless there is no end to it.
void Reactor::run() {
  int rounds_since_timers = 0;
  while (!stopping_.load()) {
    const auto now = Clock::now();
    const bool busy = run_events(time_to_timer(now));
    run_posted();
    if (now >= next_look_) {
      next_look_ = now + kLongestSleep;
      run_guarded([this] { tell_of_closed_descriptors(); });
    }
    if (busy && ++rounds_since_timers < kMostRoundsBeforeTimers) continue;
    run_timers(now);
    rounds_since_timers = 0;
  }
}

}  // namespace nitinol
