#include "comm/handle.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fork_safe.h"
#include "comm/communicator.h"

namespace nitinol {
namespace {

constexpr uint64_t kLive = 0x4e6974696e6f6c2bULL;
constexpr uint64_t kDestroyed = 0x4e6974696e6f6c2dULL;
/// So many handles are retired before one is used again.
constexpr size_t kQuarantine = 1024;
/// So many of them keep what they stood for, which is tens of kilobytes each; and all keep what a thread is still in.
constexpr size_t kObjectsKept = 64;

struct Handles {
  std::mutex mutex;
  std::deque<ncclComm> all;        // addresses stay
  std::vector<ncclComm*> retired;  ///< oldest first; with room for all, as what ends takes no memory
  ncclComm* unused = nullptr;      ///< was reserved in vain
};

// Never destroyed: programs destroy communicators late.
Handles& handles() {
  static Handles& instance = make_free_across_forks<Handles>();
  return instance;
}

void check(ncclComm_t handle, const char* function) {
  if (handle == nullptr) fail(ncclInvalidArgument, "{} : comm argument is NULL", function);
  const uint64_t magic = __atomic_load_n(&handle->magic, __ATOMIC_ACQUIRE);
  if (magic == kDestroyed) {
    fail(ncclInvalidArgument, "{} : the communicator has been destroyed or aborted", function);
  }
  if (magic != kLive) fail(ncclInvalidArgument, "{} : Error: corrupted comm object detected", function);
}

/// Of any pointer, which is not followed unless it is one of ours: what comes with a question about an error may never
/// have been a communicator's. Under the lock.
bool is_live(const Handles& all, ncclComm_t handle) {
  const auto is_it = [&](const ncclComm& one) { return &one == handle; };
  const bool ours = std::any_of(all.all.begin(), all.all.end(), is_it);
  return ours && __atomic_load_n(&handle->magic, __ATOMIC_ACQUIRE) == kLive && handle->communicator;
}

}  // namespace

ncclComm_t reserve_handle() {
  Handles& h = handles();
  const std::lock_guard lock(h.mutex);
  if (h.unused != nullptr) return std::exchange(h.unused, h.unused->next_unused);
  if (h.retired.size() <= kQuarantine) {
    if (h.retired.capacity() == h.all.size()) h.retired.reserve(2 * h.all.size() + kObjectsKept);
    return &h.all.emplace_back();
  }
  ncclComm* const handle = h.retired.front();
  h.retired.erase(h.retired.begin());
  return handle;
}

ncclComm_t use_handle(ncclComm_t reserved, std::shared_ptr<Communicator> communicator) noexcept {
  Handles& h = handles();
  const std::lock_guard lock(h.mutex);
  if (!communicator) {
    reserved->next_unused = std::exchange(h.unused, reserved);
    return nullptr;
  }
  reserved->communicator = std::move(communicator);
  __atomic_store_n(&reserved->magic, kLive, __ATOMIC_RELEASE);
  return reserved;
}

std::shared_ptr<Communicator> release_handle(ncclComm_t handle, const char* function) {
  check(handle, function);
  std::shared_ptr<Communicator> outdated;  // goes after the lock
  Handles& h = handles();
  const std::lock_guard lock(h.mutex);
  check(handle, function);  // of two threads that end a communicator one is refused
  __atomic_store_n(&handle->magic, kDestroyed, __ATOMIC_RELEASE);
  h.retired.push_back(handle);
  // The handle keeps the object for a while: a call that another thread has just begun may still look at it.
  if (h.retired.size() > kObjectsKept) {
    std::shared_ptr<Communicator>& old = h.retired[h.retired.size() - 1 - kObjectsKept]->communicator;
    if (old && !old->has_visitors()) outdated = std::move(old);
  }
  return handle->communicator;
}

Communicator& communicator_of(ncclComm_t handle, const char* function) {
  check(handle, function);
  return *handle->communicator;
}

std::shared_ptr<Communicator> shared_communicator_of(ncclComm_t handle, const char* function) {
  check(handle, function);
  const std::lock_guard lock(handles().mutex);
  check(handle, function);
  return handle->communicator;
}

const char* last_error_of(ncclComm_t handle) noexcept {
  if (handle == nullptr) return nullptr;
  Handles& h = handles();
  const std::lock_guard lock(h.mutex);
  return is_live(h, handle) ? handle->communicator->last_error() : nullptr;
}

void note_failed_call(ncclComm_t handle, const std::exception& thrown) noexcept {
  if (handle == nullptr) return;
  Handles& h = handles();
  const std::lock_guard lock(h.mutex);
  if (is_live(h, handle) && !handle->communicator->is_inherited()) handle->communicator->note_failed_call(thrown);
}

}  // namespace nitinol
