// A number that a test and the processes it forks share.
#pragma once

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "shared.h"

namespace nitinol::testing {

class SharedCount {
 public:
  int value() const { return count_->load(); }
  void add() const { count_->fetch_add(1); }
  void wait_for(int value) const {
    for (int i = 0; count_->load() < value; ++i) {
      if (i == 90'000) throw std::runtime_error("another process of the test did not come");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  /// For `all` processes that go on together.
  void meet(int all) const {
    add();
    wait_for(all);
  }

 private:
  Shared<std::atomic<int>> count_;
};

}  // namespace nitinol::testing
