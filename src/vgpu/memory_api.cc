// The API's functions that allocate, register and describe memory.
#include <atomic>
#include <cstring>

#include "cuda_runtime_api.h"
#include "vgpu.h"
#include "vgpu/capture.h"
#include "vgpu/engine.h"
#include "vgpu/memory.h"
#include "vgpu/runtime.h"

namespace nitinol::vgpu {
namespace {

constexpr unsigned kHostAllocFlags = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
constexpr unsigned kHostRegisterFlags =
    cudaHostRegisterPortable | cudaHostRegisterMapped | cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;

// Of memory, in streams: what they are to free yet is not free.
std::atomic<int> g_frees_queued{0};

bool may_be_had_later(size_t size) { return g_frees_queued > 0 && size <= device_memory_total(); }

cudaError_t allocate_into(void** pointer, size_t size, cudaMemoryType type, unsigned flags) {
  if (pointer == nullptr) return cudaErrorInvalidValue;
  if (cudaError_t error = check_unsafe_call()) return error;
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  const int device = thread_state().device;
  *pointer = allocate(size, type, device, flags);
  if (*pointer == nullptr && type != cudaMemoryTypeHost && may_be_had_later(size)) {
    synchronize_device(device);
    *pointer = allocate(size, type, device, flags);
  }
  return *pointer != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}

// Memory may still be in use by work queued on its device, so freeing waits for that.
cudaError_t free_after_use(void* pointer, cudaMemoryType type, cudaMemoryType other_type) {
  if (pointer == nullptr) return cudaSuccess;
  if (cudaError_t error = check_unsafe_call()) return error;
  const std::optional<Allocation> allocation = find_allocation(pointer);
  if (!allocation) return cudaErrorInvalidValue;
  synchronize_device(allocation->device);
  return release(pointer, type, other_type) ? cudaSuccess : cudaErrorInvalidValue;
}

// Memory that a captured allocation made: lives as long as the graph and its instances, or until it is freed if it is
// allocated when they go.
struct GraphMemory {
  explicit GraphMemory(void* memory) : pointer(memory) {}
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  ~GraphMemory() { leave_graph(pointer); }
  void* pointer;
};

cudaError_t allocate_in_stream(void** pointer, size_t size, Stream& stream) {
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  const bool captured = capturing(stream);
  const Keeper keeper = captured ? Keeper::kGraphIdle : Keeper::kProgram;
  void* memory = allocate(size, cudaMemoryTypeDevice, stream.device, 0, keeper);
  if (memory == nullptr && !captured && may_be_had_later(size)) {
    wait_for(stream.end());
    memory = allocate(size, cudaMemoryTypeDevice, stream.device, 0, keeper);
  }
  if (memory == nullptr) return cudaErrorMemoryAllocation;
  if (captured) {
    Task task([owner = std::make_shared<GraphMemory>(memory)] { allocate_in_graph(owner->pointer); });
    if (cudaError_t error = capture_task(stream, cudaGraphNodeTypeMemAlloc, task)) return error;
  }
  *pointer = memory;
  return cudaSuccess;
}

void describe(cudaPointerAttributes* attributes, const void* pointer) {
  auto* address = const_cast<void*>(pointer);
  *attributes = {};
  const std::optional<Allocation> allocation = find_allocation(pointer);
  if (!allocation) {
    attributes->device = cudaInvalidDeviceId;
    attributes->hostPointer = address;
    return;
  }
  attributes->type = allocation->type;
  attributes->device = allocation->device;
  attributes->devicePointer = address;
  attributes->hostPointer = allocation->type == cudaMemoryTypeDevice ? nullptr : address;
}

}  // namespace
// What is declared in the global namespace: functions with C linkage are the same in any namespace.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t size) {
  return guarded([&] { return allocate_into(pointer, size, cudaMemoryTypeDevice, 0); });
}

cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  return guarded([&] {
    constexpr size_t kPitchUnit = 512;
    if (pitch == nullptr || width > SIZE_MAX - kPitchUnit) return cudaErrorInvalidValue;
    *pitch = (width + kPitchUnit - 1) / kPitchUnit * kPitchUnit;
    if (height != 0 && *pitch > SIZE_MAX / height) return cudaErrorMemoryAllocation;
    return allocate_into(pointer, *pitch * height, cudaMemoryTypeDevice, 0);
  });
}

cudaError_t cudaFree(void* pointer) {
  return guarded([&] { return free_after_use(pointer, cudaMemoryTypeDevice, cudaMemoryTypeManaged); });
}

cudaError_t cudaMallocHost(void** pointer, size_t size) { return cudaHostAlloc(pointer, size, cudaHostAllocDefault); }

cudaError_t cudaHostAlloc(void** pointer, size_t size, unsigned flags) {
  return guarded([&] {
    if ((flags & ~kHostAllocFlags) != 0) return cudaErrorInvalidValue;
    return allocate_into(pointer, size, cudaMemoryTypeHost, flags | cudaHostAllocMapped);
  });
}

cudaError_t cudaFreeHost(void* pointer) {
  return guarded([&] { return free_after_use(pointer, cudaMemoryTypeHost, cudaMemoryTypeHost); });
}

cudaError_t cudaHostRegister(void* pointer, size_t size, unsigned flags) {
  return guarded([&] {
    if (pointer == nullptr || size == 0 || (flags & ~kHostRegisterFlags) != 0) return cudaErrorInvalidValue;
    if (cudaError_t error = check_unsafe_call()) return error;
    Allocation allocation;
    allocation.extent.base = reinterpret_cast<uintptr_t>(pointer);
    allocation.size = size;
    allocation.origin = Origin::kRegistered;
    allocation.type = cudaMemoryTypeHost;
    allocation.device = thread_state().device;
    allocation.flags = flags | cudaHostRegisterMapped;
    return add_known(allocation) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
  });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return guarded([&] {
    if (pointer == nullptr) return cudaErrorInvalidValue;
    if (cudaError_t error = check_unsafe_call()) return error;
    return remove_known(pointer, Origin::kRegistered) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  return guarded([&] {
    if (device == nullptr || host == nullptr || flags != 0) return cudaErrorInvalidValue;
    const std::optional<Allocation> allocation = find_allocation(host);
    if (!allocation || allocation->type == cudaMemoryTypeDevice) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  return guarded([&] {
    const std::optional<Allocation> allocation = find_allocation(host);
    if (flags == nullptr || !allocation || allocation->type != cudaMemoryTypeHost) return cudaErrorInvalidValue;
    *flags = allocation->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaMallocManaged(void** pointer, size_t size, unsigned flags) {
  return guarded([&] {
    const bool flags_right = flags == cudaMemAttachGlobal || flags == cudaMemAttachHost;
    if (!flags_right || size == 0) return cudaErrorInvalidValue;
    return allocate_into(pointer, size, cudaMemoryTypeManaged, flags);
  });
}

cudaError_t cudaMallocAsync(void** pointer, size_t size, cudaStream_t handle) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (pointer == nullptr) return cudaErrorInvalidValue;
    return allocate_in_stream(pointer, size, *stream);
  });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t handle) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (pointer == nullptr) return cudaSuccess;
    const std::optional<Allocation> allocation = find_allocation(pointer);
    const bool whole = allocation && allocation->origin == Origin::kAllocated &&
                       allocation->type == cudaMemoryTypeDevice &&
                       allocation->extent.base == reinterpret_cast<uintptr_t>(pointer);
    if (!whole) return cudaErrorInvalidValue;
    if (capturing(*stream)) {
      if (allocation->keeper == Keeper::kProgram) return cudaErrorInvalidValue;
      return submit(*stream, cudaGraphNodeTypeMemFree, [=] { free_in_graph(pointer); });
    }
    ++g_frees_queued;
    const cudaError_t error = submit(*stream, cudaGraphNodeTypeMemFree, [=] {
      release(pointer, cudaMemoryTypeDevice, cudaMemoryTypeDevice);
      --g_frees_queued;
    });
    if (error != cudaSuccess) --g_frees_queued;
    return error;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return guarded([&] {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    describe(attributes, pointer);
    return cudaSuccess;
  });
}

int vgpuMemoryShareable(const void* pointer, int* fd, size_t* offset, size_t* size) {
  const std::optional<Allocation> allocation = find_allocation(pointer);
  if (!allocation || allocation->origin != Origin::kAllocated) return 0;
  const size_t inside = reinterpret_cast<uintptr_t>(pointer) - allocation->extent.base;
  if (fd != nullptr) *fd = allocation->extent.fd;
  if (offset != nullptr) *offset = allocation->extent.offset + inside;
  if (size != nullptr) *size = allocation->size - inside;
  return 1;
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace nitinol::vgpu
