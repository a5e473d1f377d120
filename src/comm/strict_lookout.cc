#include "comm/strict_lookout.h"

#include <pthread.h>

#include <chrono>
#include <exception>
#include <system_error>

#include "base/blocked_signals.h"
#include "base/error.h"
#include "comm/strict_circle.h"

namespace nitinol {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};

}  // namespace

std::shared_ptr<StrictLookout> StrictLookout::of_process() {
  static auto* const mutex = new std::mutex;
  static auto* const present = new std::weak_ptr<StrictLookout>;
  const std::lock_guard lock(*mutex);
  std::shared_ptr<StrictLookout> found = present->lock();
  if (!found) *present = found = std::make_shared<StrictLookout>();
  return found;
}

StrictLookout::StrictLookout() {
  try {
    const BlockedSignals blocked;
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& thrown) {
    fail(ncclSystemError, "no thread for NITINOL_CHECK=strict: {} (ulimit -u, memory)", thrown.what());
  }
}

StrictLookout::~StrictLookout() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    over_changed_.notify_all();
  }
  thread_.join();
}

void StrictLookout::add(StrictCircle& circle) {
  const std::lock_guard lock(mutex_);
  circles_.push_back(&circle);
}

void StrictLookout::remove(StrictCircle& circle) {
  const std::lock_guard lock(mutex_);
  std::erase(circles_, &circle);
}

void StrictLookout::run() {
  pthread_setname_np(pthread_self(), "nitinol-strict");
  std::unique_lock lock(mutex_);
  while (!over_changed_.wait_for(lock, kBetweenLooks, [this] { return over_; })) {
    for (StrictCircle* const circle : circles_) {
      try {
        circle->look();
      } catch (const std::exception&) {  // no memory: the next look may have some
      }
    }
  }
}

}  // namespace nitinol
