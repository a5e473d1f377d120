#include "comm/memory.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"
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
struct Allocation {
  int device = 0;
  std::unique_ptr<p2p::Region> region;
};
struct Allocations {
  std::mutex mutex;
  std::map<void*, Allocation> by_address;
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
    allocations().by_address[pointer] = {device, std::move(region)};
  }
  log_allocation(bytes, pointer);
  return pointer;
}

void release(void* pointer) {
  if (pointer == nullptr) return;
  const RelaxedCaptureGuard relaxed;
  Allocation found;
  {
    const std::lock_guard lock(allocations().mutex);
    auto taken = allocations().by_address.extract(pointer);
    if (!taken.empty()) found = std::move(taken.mapped());
  }
  if (found.region == nullptr) {
    cuda_check(cudaFree(pointer), "ncclMemFree: cudaFree");
  } else {
    const DeviceGuard on(found.device);
    cuda_check(cudaDeviceSynchronize(), "ncclMemFree: cudaDeviceSynchronize");  // as cudaFree waits
  }
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

void* register_buffer(ncclComm_t handle, void* buffer, size_t bytes) {
  Communicator& communicator = communicator_of(handle, "ncclCommRegister");
  communicator.require_ready("ncclCommRegister", Call::kRegister);
  if (buffer == nullptr || bytes == 0) {
    fail(ncclInvalidArgument, "ncclCommRegister : buffer {} of {} bytes: it must not be NULL or empty", buffer, bytes);
  }
  void* const registration = communicator.registrations().add(buffer, bytes);
  log_done(Subsystem::kReg, "rank {}: buffer {} of {} bytes is registered as {}", communicator.rank(), buffer, bytes,
           registration);
  return registration;
}

void deregister_buffer(ncclComm_t handle, void* registration) {
  Communicator& communicator = communicator_of(handle, "ncclCommDeregister");
  if (registration == nullptr) return;
  if (!communicator.registrations().remove(registration)) {
    fail(ncclInvalidUsage, "ncclCommDeregister : handle {} is not a registration of this communicator", registration);
  }
  log_done(Subsystem::kReg, "rank {}: {} is not registered any more", communicator.rank(), registration);
}

}  // namespace nitinol
