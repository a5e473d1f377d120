// The lock of a rank, held for whole operations.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace nitinol::cpu {

/// A rank's launches come one after the other by the order of their streams. This is for those that do not, so nobody
/// is in a hurry here; where nobody waits it costs half as much as a mutex.
class Turn {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire)) std::this_thread::sleep_for(kPatience);
  }
  bool try_lock() { return !taken_.exchange(true, std::memory_order_acquire); }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  static constexpr std::chrono::microseconds kPatience{100};

  std::atomic<bool> taken_{false};
};

}  // namespace nitinol::cpu
