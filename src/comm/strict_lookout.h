// The thread that looks after those who compare calls (strict_circle.h), which wait on the host themselves.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace nitinol {

class StrictCircle;

class StrictLookout {
 public:
  /// The process's, as long as anybody keeps it. Throws Error if there is no thread.
  static std::shared_ptr<StrictLookout> of_process();

  StrictLookout();
  ~StrictLookout();
  StrictLookout(const StrictLookout&) = delete;
  StrictLookout& operator=(const StrictLookout&) = delete;

  void add(StrictCircle& circle);
  /// Afterwards nobody looks at it.
  void remove(StrictCircle& circle);
  /// The thread that has called all groups; 0: there were several.
  int only_caller() const { return several_callers_.load() ? 0 : first_caller_.load(); }

 private:
  void run();

  std::mutex mutex_;  // of what follows
  std::condition_variable over_changed_;
  std::vector<StrictCircle*> circles_;
  bool over_ = false;
  std::atomic<int> first_caller_{0};
  std::atomic<bool> several_callers_{false};
  std::thread thread_;
};

}  // namespace nitinol
