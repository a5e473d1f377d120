#include "executor/cuda/late_watch.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "base/blocked_signals.h"

namespace nitinol::cuda {

namespace {

constexpr std::chrono::milliseconds kBetweenLooks{50};
constexpr std::chrono::seconds kPatienceAtTheEnd{1};

class Watch {
 public:
  uint64_t add(std::function<void()> look) {
    const std::lock_guard lock(mutex_);
    ++last_;
    if (over_) return last_;
    if (!ends_with_process_) {
      ends_with_process_ = std::atexit(end_with_process) == 0;
      process_ = getpid();
    }
    if (!running_) start();  // it ends at once if there comes nothing to look at
    looks_[last_] = std::move(look);
    return last_;
  }

  void hurry() {
    const std::lock_guard lock(mutex_);
    hurries_ = true;
    changed_.notify_all();
  }

  /// Nothing is looked at any more: what that is goes with CUDA, which ends later, as it began earlier.
  void end() {
    if (getpid() != process_) return;  // forked: there is no thread, but perhaps what it had locked
    std::unique_lock lock(mutex_);
    over_ = true;
    looks_.clear();
    changed_.notify_all();
    changed_.wait_for(lock, kPatienceAtTheEnd, [this] { return looking_at_ == 0; });
  }

  void remove(uint64_t id) {
    std::unique_lock lock(mutex_);
    looks_.erase(id);
    changed_.notify_all();
    changed_.wait(lock, [&] { return looking_at_ != id; });
  }

 private:
  /// Under the lock, for which the thread then waits.
  void start() {
    const BlockedSignals blocked;
    std::thread([this] { run(); }).detach();  // it ends by itself; this object never does
    running_ = true;
  }

  void run() {
    pthread_setname_np(pthread_self(), "nitinol-watch");
    std::unique_lock lock(mutex_);
    while (!looks_.empty()) {
      changed_.wait_for(lock, kBetweenLooks, [this] { return looks_.empty() || hurries_; });
      hurries_ = false;
      for (auto entry = looks_.begin(); entry != looks_.end(); entry = looks_.upper_bound(looking_at_)) {
        looking_at_ = entry->first;
        changed_.notify_all();  // whoever waits for the end of the look before
        const std::function<void()> look = entry->second;
        lock.unlock();
        try {
          look();
        } catch (const std::exception&) {  // it had no memory even to say what was wrong
        }
        lock.lock();
        if (looks_.empty()) break;
      }
      looking_at_ = 0;
      changed_.notify_all();
    }
    running_ = false;
  }

  static void end_with_process();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, std::function<void()>> looks_;
  uint64_t last_ = 0;
  uint64_t looking_at_ = 0;
  bool running_ = false;
  bool hurries_ = false;
  bool ends_with_process_ = false;
  bool over_ = false;
  pid_t process_ = 0;  ///< that has the thread
};

Watch& watch() {
  static Watch* const one = new Watch;  // outlives static destruction, as its thread may
  return *one;
}

void Watch::end_with_process() { watch().end(); }

}  // namespace

uint64_t start_watching(std::function<void()> look) { return watch().add(std::move(look)); }
void look_soon() { watch().hurry(); }
void stop_watching(uint64_t id) { watch().remove(id); }

}  // namespace nitinol::cuda
