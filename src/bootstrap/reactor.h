// The one network thread of a process: waits for events on all bootstrap descriptors of all communicators, and runs
// their state machines, timers and posted functions. Nothing that runs on it may block.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bootstrap/fork_guard.h"

namespace nitinol {

class Reactor {
 public:
  using Clock = std::chrono::steady_clock;
  using Token = std::uint64_t;
  using Timer = std::pair<Clock::time_point, std::uint64_t>;

  Reactor();
  ~Reactor();  // only for one that was never started
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  /// Starts the thread, which lives as long as the process.
  void start();

  /// Runs `function` on the network thread, soon. From any thread.
  void post(std::function<void()> function);

  // The rest is for the network thread only.

  /// Calls `callback` with epoll's event bits whenever one of `events` is there. Returns what names the registration.
  Token add(int fd, std::uint32_t events, std::function<void(std::uint32_t)> callback);
  void modify(Token token, int fd, std::uint32_t events);
  /// To be called before the descriptor is closed.
  void remove(Token token, int fd);

  Timer run_after(std::chrono::milliseconds delay, std::function<void()> function);
  void cancel(const Timer& timer);

  /// Memory to read into, valid until the callback returns.
  std::span<std::byte> scratch() { return scratch_; }

 private:
  void loop();
  void run_posted();
  int run_timers();  // returns the milliseconds until the next one, -1 if there is none

  GuardedFd epoll_;
  GuardedFd wake_;
  std::mutex mutex_;  // guards posted_
  std::vector<std::function<void()>> posted_;
  // By shared pointer: a callback may remove itself while it runs.
  std::unordered_map<Token, std::shared_ptr<std::function<void(std::uint32_t)>>> callbacks_;
  std::map<Timer, std::function<void()>> timers_;
  std::uint64_t next_name_ = 1;
  std::vector<std::byte> scratch_;
};

}  // namespace nitinol
