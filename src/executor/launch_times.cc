#include "executor/launch_times.h"

#include <algorithm>
#include <thread>

#include "device/guards.h"

namespace nitinol {

namespace {

int64_t nanoseconds_since_epoch() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace

void LaunchTimes::begin(cudaStream_t stream) {
  Slot& slot = slots_[(launches_ + 1) % kKept];
  {
    const std::lock_guard lock(mutex_);
    slot.launch = 0;
    slot.has_end = false;
  }
  slot.begun.record(stream);
  const std::lock_guard lock(mutex_);
  slot.launch = ++launches_;
}

void LaunchTimes::end(cudaStream_t stream) {
  Slot& slot = slots_[launches_ % kKept];
  slot.ended.record(stream);
  const std::lock_guard lock(mutex_);
  slot.has_end = true;
}

/// 0: it has not happened in time.
int64_t LaunchTimes::time_of_now(std::chrono::milliseconds patience) const {
  const auto start = std::chrono::steady_clock::now();
  const int64_t before = nanoseconds_since_epoch();
  now_.record(stream_.get());
  while (!now_.has_happened()) {
    if (std::chrono::steady_clock::now() - start > patience) return 0;
    std::this_thread::yield();
  }
  return before + (nanoseconds_since_epoch() - before) / 2;
}

/// 0: it has not happened.
int64_t LaunchTimes::time_of(const Event& event, int64_t now) const {
  if (!event.has_happened()) return 0;
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, event.get(), now_.get()), "cudaEventElapsedTime");
  return now - static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
}

std::vector<LaunchRun> LaunchTimes::read(std::chrono::milliseconds patience) {
  const RelaxedCaptureGuard relaxed;
  const std::lock_guard reading(reading_);
  const int64_t now = time_of_now(patience);
  std::vector<LaunchRun> runs;
  if (now == 0) return runs;
  const std::lock_guard lock(mutex_);
  for (uint64_t launch = launches_ - std::min<uint64_t>(launches_, kKept); launch < launches_; ++launch) {
    const Slot& slot = slots_[(launch + 1) % kKept];
    if (slot.launch == 0) continue;
    LaunchRun run{.launch = slot.launch, .begun = time_of(slot.begun, now)};
    if (run.begun == 0) break;
    if (slot.has_end) run.ended = time_of(slot.ended, now);
    runs.push_back(run);
  }
  return runs;
}

}  // namespace nitinol
