// The watching thread.
#include "watchdog.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace nitinol::perf {

Watchdog::Watchdog(int seconds, int process) : seconds_(seconds), process_(process) {
  if (seconds_ > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::progress(const std::string& doing) {
  const std::lock_guard lock(mutex_);
  doing_ = doing;
  ++steps_;
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  unsigned long long seen = steps_;
  while (!ended_) {
    wake_.wait_for(lock, std::chrono::seconds(seconds_), [this] { return ended_; });
    if (!ended_ && steps_ == seen) {
      std::fprintf(stderr, "\nnitinol-perf: process %d: no progress for %d s while %s; giving up (--timeout)\n",
                   process_, seconds_, doing_.c_str());
      _exit(3);
    }
    seen = steps_;
  }
}

}  // namespace nitinol::perf
