// An event loop: waits for events on descriptors, and runs their state machines, timers and posted functions. One, on a
// thread that lives as long as the process, serves the bootstrap of all communicators: nothing that runs on it may
// block.
#pragma once

#include <atomic>
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
#include "bootstrap/waker.h"

namespace nitinol {

class Reactor {
 public:
  using Clock = std::chrono::steady_clock;
  using Token = std::uint64_t;
  using Timer = std::pair<Clock::time_point, std::uint64_t>;

  Reactor();
  ~Reactor();  // only for one that was never started, or whose run() has returned
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  /// Starts the thread, which lives as long as the process.
  void start();

  /// Instead of start(): runs in the calling thread until stop(), which may come from any thread.
  void run();
  void stop();

  /// Runs `function` on the reactor's thread, soon. From any thread.
  void post(std::function<void()> function);

  /// What the reactor's thread ends when nobody needs it any more.
  class Leaver {
   public:
    Leaver() = default;
    virtual ~Leaver() = default;
    Leaver(const Leaver&) = delete;
    Leaver& operator=(const Leaver&) = delete;

   private:
    friend class Reactor;
    /// On the reactor's thread.
    virtual void leave() = 0;

    std::shared_ptr<Leaver> next_;  // of those who are to leave; the reactor's mutex guards both
    bool is_asked_ = false;
  };

  /// Has it leave, soon, after what was posted before. From any thread; takes no memory.
  void ask_to_leave(std::shared_ptr<Leaver> leaver) noexcept;

  /// False: the program has closed descriptors of the reactor's own, which notices nothing any more. From any thread.
  bool is_whole() const noexcept { return is_watched(waker_.fd()); }

  // The rest is for the reactor's thread only.

  /// Beside epoll's event bits: the program has closed the descriptor, whose number may be another's now; or one of the
  /// reactor's own. A closed one is looked for once a second.
  static constexpr std::uint32_t kClosed = 1U << 20;
  static constexpr std::uint32_t kBlind = 1U << 21;

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
  void run_posted();
  void run_leavers(std::shared_ptr<Leaver> first);
  std::chrono::milliseconds time_to_timer(Clock::time_point now) const;  // how long to sleep at most
  void run_timers(Clock::time_point now);
  bool run_events(std::chrono::milliseconds timeout);  // whether there were any
  bool is_watched(int fd) const noexcept;
  void run_callback(Token token, std::uint32_t events);
  void tell_of_closed_descriptors();

  GuardedFd epoll_;
  Waker waker_;
  std::mutex mutex_;  // guards the next two
  std::vector<std::function<void()>> posted_;
  std::shared_ptr<Leaver> leavers_;  // a list
  struct Registration {
    int fd = -1;
    // By shared pointer: it may remove itself while it runs.
    std::shared_ptr<std::function<void(std::uint32_t)>> callback;
  };
  std::unordered_map<Token, Registration> registrations_;
  Clock::time_point next_look_;  // for closed descriptors
  std::map<Timer, std::function<void()>> timers_;
  std::uint64_t next_name_ = 1;
  std::vector<std::byte> scratch_;
  std::atomic<bool> stopping_{false};
};

}  // namespace nitinol
