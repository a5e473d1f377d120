#include "comm/memory.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "comm/communicator.h"
#include "comm/handle.h"
#include "device/check.h"
#include "device/guards.h"

#if defined(NITINOL_CUDA)
#include "transport/region.h"
#endif

namespace nitinol {

namespace {

/// What has been done stays done without memory for a line.
template <class... Args>
void log_done(Subsystem subsystem, fmt::format_string<Args...> text, Args&&... args) noexcept {
  try {
    log_info(subsystem, text, std::forward<Args>(args)...);
  } catch (const std::exception&) {
  }
}

void log_allocation(size_t bytes, const void* pointer) noexcept {
  log_done(Subsystem::kAlloc, "ncclMemAlloc: {} bytes at {}", bytes, pointer);
}

}  // namespace

#if defined(NITINOL_CUDA)

namespace {

/// What ncclMemAlloc gave out: memory that other processes can map too.
struct Allocations {
  std::mutex mutex;
  std::map<void*, std::unique_ptr<p2p::Region>> by_address;
};

Allocations& allocations() {
  static Allocations* const instance = new Allocations;  // what was not freed goes with the process
  return *instance;
}

/// The current device and those that reach its memory.
std::vector<int> devices_that_reach(int device) {
  std::vector<int> devices{device};
  int count = 0;
  cuda_check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (int other = 0; other < count; ++other) {
    int reaches = 0;
    if (other != device) cuda_check(cudaDeviceCanAccessPeer(&reaches, other, device), "cudaDeviceCanAccessPeer");
    if (reaches != 0) devices.push_back(other);
  }
  return devices;
}

}  // namespace

void* allocate(size_t bytes) {
  const RelaxedCaptureGuard relaxed;
  int device = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  std::unique_ptr<p2p::Region> region =
      p2p::allocate(p2p::Place::kForUsers, device, std::max<size_t>(bytes, 1), devices_that_reach(device));
  void* const pointer = region->address();
  {
    const std::lock_guard lock(allocations().mutex);
    allocations().by_address[pointer] = std::move(region);
  }
  log_allocation(bytes, pointer);
  return pointer;
}

void release(void* pointer) {
  if (pointer == nullptr) return;
  const RelaxedCaptureGuard relaxed;
  std::unique_ptr<p2p::Region> found;  // which goes after the lock
  {
    const std::lock_guard lock(allocations().mutex);
    auto taken = allocations().by_address.extract(pointer);
    if (!taken.empty()) found = std::move(taken.mapped());
  }
  if (found == nullptr) cuda_check(cudaFree(pointer), "ncclMemFree: cudaFree");
}

#else

void* allocate(size_t bytes) {
  const RelaxedCaptureGuard relaxed;
  constexpr size_t kPage = 4096;  // from which on cudaMalloc gives whole ones, as windows need and GPUs do
  void* pointer = nullptr;
  cuda_check(cudaMalloc(&pointer, std::max(bytes, kPage)), "ncclMemAlloc: cudaMalloc");
  log_allocation(bytes, pointer);
  return pointer;
}

void release(void* pointer) {
  const RelaxedCaptureGuard relaxed;
  if (pointer != nullptr) cuda_check(cudaFree(pointer), "ncclMemFree: cudaFree");
}

#endif

namespace {

/// `kind` of range is what the log calls it.
void* remember(Communicator& communicator, Registrations& ranges, const char* kind, void* buffer, size_t bytes) {
  void* const handle = ranges.add(buffer, bytes);
  log_done(Subsystem::kReg, "rank {}: {} {} of {} bytes is registered as {}", communicator.rank(), kind, buffer, bytes,
           handle);
  return handle;
}

}  // namespace

void* register_buffer(ncclComm_t handle, void* buffer, size_t bytes) {
  Communicator& communicator = communicator_of(handle, "ncclCommRegister");
  communicator.require_ready("ncclCommRegister", Call::kRegister);
  if (buffer == nullptr || bytes == 0) {
    fail(ncclInvalidArgument, "ncclCommRegister : buffer {} of {} bytes: it must not be NULL or empty", buffer, bytes);
  }
  return remember(communicator, communicator.registrations(), "buffer", buffer, bytes);
}

void deregister_buffer(ncclComm_t handle, void* registration) {
  Communicator& communicator = communicator_of(handle, "ncclCommDeregister");
  if (registration == nullptr) return;
  if (!communicator.registrations().remove(registration)) {
    fail(ncclInvalidUsage, "ncclCommDeregister : handle {} is not a registration of this communicator", registration);
  }
  log_done(Subsystem::kReg, "rank {}: {} is not registered any more", communicator.rank(), registration);
}

ncclWindow_t register_window(ncclComm_t handle, void* buffer, size_t bytes, int flags) {
  constexpr const char* kName = "ncclCommWindowRegister";
  Communicator& communicator = communicator_of(handle, kName);
  communicator.require_ready(kName, Call::kRegister);
  if (buffer == nullptr || bytes == 0) {
    fail(ncclInvalidArgument, "{} : buffer {} of {} bytes: it must not be NULL or empty", kName, buffer, bytes);
  }
  if ((flags & ~NCCL_WIN_COLL_SYMMETRIC) != 0) fail(ncclInvalidArgument, "{} : invalid flags {}", kName, flags);
  if (!settings().flag(Setting::kWinEnable)) return nullptr;
  if (reinterpret_cast<uintptr_t>(buffer) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
    fail(ncclInvalidArgument, "{} : buffer {} does not begin at a multiple of {} bytes", kName, buffer,
         NCCL_WIN_REQUIRED_ALIGNMENT);
  }
  return static_cast<ncclWindow_t>(remember(communicator, communicator.windows(), "window", buffer, bytes));
}

void deregister_window(ncclComm_t handle, ncclWindow_t window) {
  if (window == nullptr) return;
  Communicator& communicator = communicator_of(handle, "ncclCommWindowDeregister");
  if (!communicator.windows().remove(window)) {
    fail(ncclInvalidArgument, "ncclCommWindowDeregister : {} is not a window of this communicator",
         static_cast<const void*>(window));
  }
  log_done(Subsystem::kReg, "rank {}: {} is no window any more", communicator.rank(), static_cast<const void*>(window));
}

}  // namespace nitinol
