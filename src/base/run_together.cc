#include "base/run_together.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace nitinol {
namespace {

/// Where threads wait until it is known whether all of them are there.
class Gate {
 public:
  void open(bool go) {
    const std::lock_guard lock(mutex_);
    state_ = go ? State::kGo : State::kGiveUp;
    changed_.notify_all();
  }
  bool pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_ != State::kClosed; });
    return state_ == State::kGo;
  }

 private:
  enum class State { kClosed, kGo, kGiveUp };

  std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kClosed;
};

}  // namespace

void run_together(std::size_t count, const std::function<void(std::size_t)>& body) {
  if (count == 0) return;
  Gate gate;
  std::vector<std::thread> threads;
  threads.reserve(count - 1);
  std::string problem;
  try {
    for (std::size_t i = 1; i < count; ++i) {
      threads.emplace_back([&gate, &body, i] {
        if (gate.pass()) body(i);
      });
    }
  } catch (const std::exception& error) {
    problem = sentence_of(error);
  }
  gate.open(problem.empty());
  if (problem.empty()) body(0);
  for (std::thread& thread : threads) thread.join();
  if (!problem.empty()) {
    fail(ncclSystemError, "{} threads are needed at the same time, and there are only {}: {} (ulimit -u, memory)",
         count - 1, threads.size(), problem);
  }
}

}  // namespace nitinol
