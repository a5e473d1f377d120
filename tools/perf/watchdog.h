// Ends the process with exit code 3 when nothing has moved for too long.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace nitinol::perf {

class Watchdog {
 public:
  /// `seconds` 0: never bites.
  Watchdog(int seconds, int process);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Something was finished; `doing` says what comes next.
  void progress(const std::string& doing);

 private:
  void watch();

  int seconds_;
  int process_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string doing_ = "starting";
  unsigned long long steps_ = 0;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace nitinol::perf
