#include "base/run_together.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/blocked_signals.h"
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
  std::exception_ptr problem;  // what it says may take memory, and threads wait at the gate
  try {
    const BlockedSignals blocked;
    for (std::size_t i = 1; i < count; ++i) {
      threads.emplace_back([&gate, &body, i] {
        if (gate.pass()) body(i);
      });
    }
  } catch (const std::exception&) {
    problem = std::current_exception();
  }
  gate.open(!problem);
  if (!problem) body(0);
  for (std::thread& thread : threads) thread.join();
  if (!problem) return;
  try {
    std::rethrow_exception(problem);
  } catch (const std::exception& error) {
    fail(ncclSystemError, "{} threads are needed at the same time, and there are only {}: {} (ulimit -u, memory)",
         count - 1, threads.size(), sentence_of(error));
  }
}

}  // namespace nitinol
