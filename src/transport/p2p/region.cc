#include "transport/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/file_size.h"
#include "base/log.h"
#include "device/check.h"
#include "device/guards.h"
#include "device/stream.h"
#include "transport/p2p/driver.h"

namespace nitinol::p2p {

namespace {

void zero(int device, char* address, size_t bytes) {
  const DeviceGuard on(device);
  const Stream stream = Stream::create_urgent();
  cuda_check(cudaMemsetAsync(address, 0, bytes, stream.get()), "cudaMemsetAsync");
  cuda_check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
}

/// A device's number is the driver's, too.
bool has(int device, CUdevice_attribute attribute) {
  int value = 0;
  return driver().attribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

/// How memory of a device is made: `wish` counts from 0, what is asked of it first. Nothing: there is no further one.
/// Fabric handles are refused where the machine has none though the device could, and may be where nobody may have any.
std::optional<CUmemAllocationProp> properties_of(Place place, int device, int wish) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  if (place != Place::kForUsers) return wish == 0 ? std::optional(properties) : std::nullopt;
  const bool has_fabric = has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
  if (wish > (has_fabric ? 1 : 0)) return std::nullopt;
  if (has_fabric && wish == 0) {
    properties.requestedHandleTypes =
        static_cast<CUmemAllocationHandleType>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC);
  }
  const bool reaches_networks = has(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  properties.allocFlags.gpuDirectRDMACapable = reaches_networks ? 1 : 0;
  return properties;
}

/// Physical memory from the driver, mapped at an address of its own. The usual kind.
class DriverRegion : public Region {
 public:
  DriverRegion(CUmemGenericAllocationHandle handle, size_t bytes, size_t alignment, const std::vector<int>& devices)
      : handle_(handle) {
    bytes_ = bytes;
    try {
      place(alignment, devices);
    } catch (...) {
      clear();
      throw;
    }
  }
  ~DriverRegion() override { clear(); }

  /// 0 where there is no such memory.
  static size_t granularity_of(Place place, const CUmemAllocationProp& properties) {
    const auto kind =
        place == Place::kForUsers ? CU_MEM_ALLOC_GRANULARITY_RECOMMENDED : CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    size_t granularity = 0;
    return driver().granularity(&granularity, &properties, kind) == CUDA_SUCCESS ? granularity : 0;
  }

  static std::unique_ptr<Region> allocate(Place place, int device, size_t bytes, const std::vector<int>& devices) {
    for (int wish = 0;; ++wish) {
      const auto properties = properties_of(place, device, wish);
      if (!properties) return nullptr;
      const size_t granularity = granularity_of(place, *properties);
      if (granularity == 0) continue;
      const size_t size = (bytes + granularity - 1) / granularity * granularity;
      CUmemGenericAllocationHandle handle = 0;
      if (driver().create(&handle, size, &*properties, 0) != CUDA_SUCCESS) continue;
      return std::make_unique<DriverRegion>(handle, size, granularity, devices);
    }
  }

  MemoryHandle share() const override {
    int fd = -1;
    driver_check(driver().share(&fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                 "cuMemExportToShareableHandle");
    return MemoryHandle{UniqueFd(fd), bytes_};
  }

 private:
  void place(size_t alignment, const std::vector<int>& devices) {
    CUdeviceptr address = 0;
    driver_check(driver().reserve(&address, bytes_, alignment, 0, 0), "cuMemAddressReserve");
    address_ = reinterpret_cast<char*>(address);
    driver_check(driver().map(address, bytes_, 0, handle_, 0), "cuMemMap");
    mapped_ = true;
    std::vector<CUmemAccessDesc> access;
    for (const int device : devices) {
      CUmemAccessDesc one{};
      one.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      one.location.id = device;
      one.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      access.push_back(one);
    }
    driver_check(driver().set_access(address, bytes_, access.data(), access.size()),
                 "cuMemSetAccess (peer access between the GPUs; NCCL_P2P_DISABLE=1 goes through host memory instead)");
  }

  void clear() {
    const auto address = reinterpret_cast<CUdeviceptr>(address_);
    if (mapped_) static_cast<void>(driver().unmap(address, bytes_));
    if (address != 0) static_cast<void>(driver().unreserve(address, bytes_));
    static_cast<void>(driver().release(handle_));
  }

  CUmemGenericAllocationHandle handle_;
  bool mapped_ = false;
};

/// What stands in a memfd instead of memory where only CUDA's older interprocess handles work.
struct LegacyNote {
  std::array<char, 8> magic{'N', 'I', 'T', 'I', 'I', 'P', 'C', '1'};
  cudaIpcMemHandle_t handle{};
};

/// Memory of cudaMalloc, shared by CUDA IPC.
class LegacyRegion : public Region {
 public:
  LegacyRegion(int device, size_t bytes, const std::vector<int>& devices) : device_(device) {
    for (const int other : devices) enable_access(other, device);
    const DeviceGuard on(device);
    void* address = nullptr;
    cuda_check(cudaMalloc(&address, bytes), "cudaMalloc of a communication buffer");
    address_ = static_cast<char*>(address);
    bytes_ = bytes;
  }
  ~LegacyRegion() override {
    try {
      const DeviceGuard on(device_);
      static_cast<void>(cudaFree(address_));
    } catch (const std::exception&) {  // it stays allocated
    }
  }

  MemoryHandle share() const override {
    const DeviceGuard on(device_);
    LegacyNote note;
    cuda_check(cudaIpcGetMemHandle(&note.handle, address_), "cudaIpcGetMemHandle");
    UniqueFd fd(::memfd_create("nitinol-ipc", MFD_CLOEXEC));
    if (!fd) fail_errno(errno, "memfd_create for a CUDA IPC handle");
    if (::pwrite(fd.get(), &note, sizeof(note), 0) != static_cast<ssize_t>(sizeof(note))) {
      fail_errno(errno, "write of a CUDA IPC handle");
    }
    return MemoryHandle{std::move(fd), bytes_};
  }

 private:
  static void enable_access(int from, int to) {
    if (from == to) return;
    const DeviceGuard on(from);
    const cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      static_cast<void>(cudaGetLastError());
      return;
    }
    cuda_check(status, "cudaDeviceEnablePeerAccess (NCCL_P2P_DISABLE=1 goes through host memory instead)");
  }
  int device_;
};

class LegacyMapping : public Region {
 public:
  LegacyMapping(int device, const LegacyNote& note, size_t bytes) : device_(device) {
    const DeviceGuard on(device);
    void* address = nullptr;
    cuda_check(cudaIpcOpenMemHandle(&address, note.handle, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle");
    address_ = static_cast<char*>(address);
    bytes_ = bytes;
  }
  ~LegacyMapping() override {
    try {
      const DeviceGuard on(device_);
      static_cast<void>(cudaIpcCloseMemHandle(address_));
    } catch (const std::exception&) {  // it stays mapped
    }
  }
  MemoryHandle share() const override { fail(ncclInternalError, "a mapped region cannot be shared further"); }

 private:
  int device_;
};

/// Host memory in a memfd, pinned for all GPUs of the process.
class HostRegion : public Region {
 public:
  HostRegion(UniqueFd fd, size_t bytes) : fd_(std::move(fd)) {
    bytes_ = bytes;
    void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (address == MAP_FAILED) fail_errno(errno, "mmap of a communication buffer in host memory");
    address_ = static_cast<char*>(address);
    const cudaError_t status = cudaHostRegister(address, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (status != cudaSuccess) {
      ::munmap(address, bytes);
      cuda_check(status, "cudaHostRegister of a communication buffer");
    }
  }
  ~HostRegion() override {
    static_cast<void>(cudaHostUnregister(address_));
    ::munmap(address_, bytes_);
  }

  static std::unique_ptr<Region> allocate(size_t bytes) {
    UniqueFd fd(::memfd_create("nitinol", MFD_CLOEXEC));
    if (!fd) fail_errno(errno, "memfd_create for a communication buffer");
    set_file_size(fd.get(), bytes, "a communication buffer");
    return std::make_unique<HostRegion>(std::move(fd), bytes);
  }

  MemoryHandle share() const override {
    const int fd = ::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) fail_errno(errno, "dup of a communication buffer's descriptor");
    return MemoryHandle{UniqueFd(fd), bytes_};
  }

 private:
  UniqueFd fd_;
};

bool read_note(const UniqueFd& fd, LegacyNote& note) {
  const LegacyNote expected;
  return ::pread(fd.get(), &note, sizeof(note), 0) == static_cast<ssize_t>(sizeof(note)) &&
         note.magic == expected.magic;
}

}  // namespace

std::unique_ptr<Region> allocate(Place place, int device, size_t bytes, const std::vector<int>& devices) {
  if (place == Place::kHost) {
    const DeviceGuard on(device);
    auto pinned = HostRegion::allocate((bytes + 4095) / 4096 * 4096);
    log_info(Subsystem::kAllocHost, "{} bytes of pinned host memory at {}", pinned->bytes(),
             static_cast<const void*>(pinned->address()));
    return pinned;
  }
  std::unique_ptr<Region> region;
  if (driver().complete) region = DriverRegion::allocate(place, device, bytes, devices);
  if (region == nullptr) region = std::make_unique<LegacyRegion>(device, bytes, devices);
  zero(device, region->address(), region->bytes());
  log_info(Subsystem::kAlloc, "{} bytes of device {} at {}", region->bytes(), device,
           static_cast<const void*>(region->address()));
  return region;
}

std::unique_ptr<Region> map(Place place, int device, MemoryHandle handle) {
  const DeviceGuard on(device);
  if (place == Place::kHost) return std::make_unique<HostRegion>(std::move(handle.fd), handle.bytes);
  LegacyNote note;
  if (read_note(handle.fd, note)) return std::make_unique<LegacyMapping>(device, note, handle.bytes);
  if (!driver().complete) fail(ncclSystemError, "the CUDA driver cannot map another process's GPU memory");
  CUmemGenericAllocationHandle memory = 0;
  const auto fd = reinterpret_cast<void*>(static_cast<intptr_t>(handle.fd.get()));
  driver_check(driver().import(&memory, fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
               "cuMemImportFromShareableHandle");
  return std::make_unique<DriverRegion>(memory, handle.bytes, 0, std::vector<int>{device});
}

}  // namespace nitinol::p2p
