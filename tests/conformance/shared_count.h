// A number that a test and the processes it forks share.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>

namespace nitinol::testing {

class SharedCount {
 public:
  SharedCount()
      : count_(new (mmap(nullptr, sizeof(*count_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                   std::atomic<int>(0)) {}
  ~SharedCount() { munmap(count_, sizeof(*count_)); }
  SharedCount(const SharedCount&) = delete;
  SharedCount& operator=(const SharedCount&) = delete;

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
  std::atomic<int>* count_;
};

}  // namespace nitinol::testing
