// The API's functions about devices, threads and errors.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "cuda_runtime_api.h"
#include "vgpu/capture.h"
#include "vgpu/engine.h"
#include "vgpu/memory.h"
#include "vgpu/runtime.h"

namespace nitinol::vgpu {
namespace {

constexpr int kLeastPriority = 0;
constexpr int kBusesPerDomain = 128;
constexpr int kFirstBus = 0x10;
constexpr int kMultiprocessors = 132;

bool valid(int device) { return device >= 0 && device < device_count(); }
int pci_domain(int device) { return device / kBusesPerDomain; }
int pci_bus(int device) { return kFirstBus + device % kBusesPerDomain; }

struct AttributeValue {
  cudaDeviceAttr attribute;
  int value;
};

// All others are 0.
constexpr AttributeValue kAttributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, 1024},
    {cudaDevAttrMaxBlockDimX, 1024},
    {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, 2147483647},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
    {cudaDevAttrTotalConstantMemory, 65536},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxPitch, 2147483647},
    {cudaDevAttrMaxRegistersPerBlock, 65536},
    {cudaDevAttrClockRate, 1980000},
    {cudaDevAttrTextureAlignment, 512},
    {cudaDevAttrGpuOverlap, 1},
    {cudaDevAttrMultiProcessorCount, kMultiprocessors},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrMemoryClockRate, 2619000},
    {cudaDevAttrGlobalMemoryBusWidth, 5120},
    {cudaDevAttrL2CacheSize, 52428800},
    {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
    {cudaDevAttrAsyncEngineCount, 3},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrComputeCapabilityMajor, 9},
    {cudaDevAttrComputeCapabilityMinor, 0},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 233472},
    {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
    {cudaDevAttrManagedMemory, 1},
    {cudaDevAttrHostNativeAtomicSupported, 1},
    {cudaDevAttrConcurrentManagedAccess, 1},
    {cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
    {cudaDevAttrCooperativeLaunch, 1},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448},
    {cudaDevAttrHostRegisterSupported, 1},
    {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
    {cudaDevAttrReservedSharedMemoryPerBlock, 1024},
    {cudaDevAttrNumaId, -1},
    {cudaDevAttrHostNumaId, -1},
};

int attribute(cudaDeviceAttr wanted, int device) {
  if (wanted == cudaDevAttrPciBusId) return pci_bus(device);
  if (wanted == cudaDevAttrPciDomainId) return pci_domain(device);
  if (wanted == cudaDevAttrMultiGpuBoardGroupID) return device;
  for (const AttributeValue& row : kAttributes) {
    if (row.attribute == wanted) return row.value;
  }
  return 0;
}

void fill_properties(cudaDeviceProp* prop, int device) {
  *prop = {};
  std::snprintf(prop->name, sizeof prop->name, "Nitinol virtual GPU");
  std::memcpy(prop->uuid.bytes, "nitinol-vgpu", 12);
  std::memcpy(prop->uuid.bytes + 12, &device, sizeof device);
  prop->totalGlobalMem = device_memory_total();
  prop->sharedMemPerBlock = 49152;
  prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
  prop->warpSize = 32;
  prop->memPitch = 2147483647;
  prop->maxThreadsPerBlock = 1024;
  prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
  prop->maxThreadsDim[2] = 64;
  prop->maxGridSize[0] = 2147483647;
  prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
  prop->totalConstMem = 65536;
  prop->major = 9;
  prop->textureAlignment = 512;
  prop->texturePitchAlignment = 32;
  prop->multiProcessorCount = kMultiprocessors;
  prop->canMapHostMemory = prop->concurrentKernels = prop->unifiedAddressing = prop->managedMemory = 1;
  prop->streamPrioritiesSupported = prop->hostNativeAtomicSupported = prop->concurrentManagedAccess = 1;
  prop->canUseHostPointerForRegisteredMem = prop->cooperativeLaunch = prop->hostRegisterSupported = 1;
  prop->pciBusID = pci_bus(device);
  prop->pciDomainID = pci_domain(device);
  prop->asyncEngineCount = 3;
  prop->memoryBusWidth = 5120;
  prop->l2CacheSize = 52428800;
  prop->maxThreadsPerMultiProcessor = 2048;
  prop->sharedMemPerMultiprocessor = 233472;
  prop->multiGpuBoardGroupID = device;
  prop->sharedMemPerBlockOptin = 232448;
  prop->maxBlocksPerMultiProcessor = 32;
  prop->reservedSharedMemPerBlock = 1024;
  prop->deviceNumaId = prop->hostNumaId = -1;
}

cudaError_t reset_device(int device) {
  synchronize_device(device);
  std::vector<Stream*> streams;
  {
    Device& d = device_at(device);
    std::lock_guard lock(d.mutex);
    d.peers.clear();
    for (Stream* stream : d.streams) {
      if (stream->kind.load() == StreamKind::kNormal && !stream->destroyed.load()) streams.push_back(stream);
    }
  }
  for (Stream* stream : streams) destroy_stream(*stream);
  release_all(device);
  return cudaSuccess;
}

}  // namespace
// What is declared in the global namespace: functions with C linkage are the same in any namespace.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(thread_state().last_error, cudaSuccess); }

cudaError_t cudaPeekAtLastError() { return thread_state().last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  return guarded([&] {
    if (count == nullptr) return cudaErrorInvalidValue;
    *count = device_count();
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return guarded([&] {
    if (!valid(device)) return cudaErrorInvalidDevice;
    thread_state().device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return guarded([&] {
    if (device == nullptr) return cudaErrorInvalidValue;
    *device = thread_state().device;
    return cudaSuccess;
  });
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return guarded([&] { return valid(device) ? cudaSuccess : cudaErrorInvalidDevice; });
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return guarded([&] {
    if ((flags & ~static_cast<unsigned>(cudaDeviceMask)) != 0) return cudaErrorInvalidValue;
    thread_state().device_flags = flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  return guarded([&] {
    if (flags == nullptr) return cudaErrorInvalidValue;
    *flags = thread_state().device_flags;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return guarded([&] {
    if (prop == nullptr) return cudaErrorInvalidValue;
    if (!valid(device)) return cudaErrorInvalidDevice;
    fill_properties(prop, device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return guarded([&] {
    if (value == nullptr || attr <= 0 || attr >= cudaDevAttrMax) return cudaErrorInvalidValue;
    if (!valid(device)) return cudaErrorInvalidDevice;
    *value = attribute(attr, device);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int len, int device) {
  return guarded([&] {
    if (text == nullptr || len <= 0) return cudaErrorInvalidValue;
    if (!valid(device)) return cudaErrorInvalidDevice;
    const int written =
        std::snprintf(text, static_cast<size_t>(len), "%04X:%02X:00.0", static_cast<unsigned>(pci_domain(device)),
                      static_cast<unsigned>(pci_bus(device)));
    return written < len ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return guarded([&] {
    unsigned domain = 0;
    unsigned bus = 0;
    if (device == nullptr || text == nullptr) return cudaErrorInvalidValue;
    const bool has_domain = std::count(text, text + std::strlen(text), ':') > 1;
    const int found = has_domain ? std::sscanf(text, "%x:%x:", &domain, &bus) - 1 : std::sscanf(text, "%x:", &bus);
    if (found != 1) return cudaErrorInvalidValue;
    for (int i = 0; i < device_count(); ++i) {
      if (static_cast<int>(domain) != pci_domain(i) || static_cast<int>(bus) != pci_bus(i)) continue;
      *device = i;
      return cudaSuccess;
    }
    return cudaErrorInvalidDevice;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return guarded([&] {
    if (cudaError_t error = check_unsafe_call()) return error;
    if (cudaError_t error = check_no_capture_on(thread_state().device)) return error;
    synchronize_device(thread_state().device);
    return usable();
  });
}

cudaError_t cudaDeviceReset() {
  return guarded([&] {
    if (cudaError_t error = check_unsafe_call()) return error;
    return reset_device(thread_state().device);
  });
}

cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return guarded([&] {
    if (value == nullptr) return cudaErrorInvalidValue;
    *value = limit == cudaLimitStackSize ? 1024 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
  return guarded([] { return cudaSuccess; });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return guarded([&] {
    if (least != nullptr) *least = kLeastPriority;
    if (greatest != nullptr) *greatest = kGreatestPriority;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return guarded([&] {
    if (can == nullptr) return cudaErrorInvalidValue;
    if (!valid(device) || !valid(peer)) return cudaErrorInvalidDevice;
    *can = device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return guarded([&] {
    if (flags != 0) return cudaErrorInvalidValue;
    if (!valid(peer) || peer == thread_state().device) return cudaErrorInvalidDevice;
    Device& device = device_at(thread_state().device);
    std::lock_guard lock(device.mutex);
    return device.peers.insert(peer).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return guarded([&] {
    if (!valid(peer)) return cudaErrorInvalidDevice;
    Device& device = device_at(thread_state().device);
    std::lock_guard lock(device.mutex);
    return device.peers.erase(peer) > 0 ? cudaSuccess : cudaErrorPeerAccessNotEnabled;
  });
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attr, int source, int destination) {
  return guarded([&] {
    if (value == nullptr) return cudaErrorInvalidValue;
    if (!valid(source) || !valid(destination) || source == destination) return cudaErrorInvalidDevice;
    *value = attr == cudaDevP2PAttrAccessSupported || attr == cudaDevP2PAttrNativeAtomicSupported ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaRuntimeGetVersion(int* version) {
  return guarded([&] {
    if (version == nullptr) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return guarded([&] {
    if (free == nullptr || total == nullptr) return cudaErrorInvalidValue;
    *free = device_memory_free(thread_state().device);
    *total = device_memory_total();
    return cudaSuccess;
  });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace nitinol::vgpu
