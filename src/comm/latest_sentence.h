// The latest of some sentences.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <mutex>
#include <new>
#include <string>

namespace nitinol {

/// Thread-safe. Who reads does not lock, and may go on with what it read while fifteen newer sentences come.
class LatestSentence {
 public:
  /// Without memory for it the older one stays.
  void set(const char* sentence) noexcept {
    const std::lock_guard lock(mutex_);
    if (!kept_.empty() && kept_.back() == sentence) return;  // as from a loop that tries again
    try {
      kept_.emplace_back(sentence);
      if (kept_.size() > kKept) kept_.pop_front();
      latest_.store(kept_.back().c_str(), std::memory_order_release);
    } catch (const std::bad_alloc&) {
    }
  }

  /// Null if there is none.
  const char* get() const { return latest_.load(std::memory_order_acquire); }

 private:
  static constexpr std::size_t kKept = 16;

  std::mutex mutex_;
  std::deque<std::string> kept_;  // newest last; the others stay where they are when one comes or goes
  std::atomic<const char*> latest_{nullptr};
};

}  // namespace nitinol
