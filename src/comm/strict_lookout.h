// The thread that looks after those who compare calls (strict_circle.h), which wait on the host themselves.
#pragma once

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

 private:
  void run();

  std::mutex mutex_;  // of what follows
  std::condition_variable over_changed_;
  std::vector<StrictCircle*> circles_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace nitinol
