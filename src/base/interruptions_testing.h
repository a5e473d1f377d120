// For tests: signals that come to a thread more often than anything looks at a clock, as those of profilers do.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace nitinol {

/// To the thread that makes it, as long as it lives. Calls that the system can start anew go on.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, &before_);
    sender_ = std::thread([this, whom = pthread_self()] {
      while (!over_) {
        pthread_kill(whom, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  }
  ~Interruptions() {
    over_ = true;
    sender_.join();
    sigaction(SIGUSR1, &before_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  struct sigaction before_ {};
  std::atomic<bool> over_{false};
  std::thread sender_;
};

}  // namespace nitinol
