#include "executor/cpu/waiter.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "executor/cpu/arena.h"

namespace nitinol::cpu {
namespace {

/// As a profiler's timer does, but on one thread.
class Interruptions {
 public:
  explicit Interruptions(pthread_t whom) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, &before_);
    thread_ = std::thread([this, whom] {
      while (!over_) {
        pthread_kill(whom, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  }
  ~Interruptions() {
    over_ = true;
    thread_.join();
    sigaction(SIGUSR1, &before_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  struct sigaction before_ {};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

TEST(Waiter, LooksNowAndThenThoughSignalsComeMoreOften) {
  const std::shared_ptr<Arena> arena = Arena::create(Geometry::of(2, 0), 0, {1, 2}, false);
  Waiter waiter(*arena, Patience{});
  const Interruptions interruptions(pthread_self());
  int looks = 0;
  EXPECT_TRUE(waiter.until([&] { return looks == 3; }, kAnything, [&] { ++looks; }));
}

}  // namespace
}  // namespace nitinol::cpu
