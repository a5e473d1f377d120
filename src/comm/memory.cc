#include "comm/memory.h"

#include <algorithm>

#include "comm/communicator.h"
#include "comm/handle.h"
#include "device/check.h"

namespace nitinol {

void* allocate(size_t bytes) {
  void* pointer = nullptr;
  cuda_check(cudaMalloc(&pointer, std::max<size_t>(bytes, 1)), "ncclMemAlloc: cudaMalloc");
  return pointer;
}

void release(void* pointer) {
  if (pointer != nullptr) cuda_check(cudaFree(pointer), "ncclMemFree: cudaFree");
}

void* register_buffer(ncclComm_t handle, void* buffer, size_t bytes) {
  Communicator& communicator = communicator_of(handle, "ncclCommRegister");
  communicator.require_ready("ncclCommRegister");
  if (buffer == nullptr || bytes == 0) {
    fail(ncclInvalidArgument, "ncclCommRegister : buffer {} of {} bytes: it must not be NULL or empty", buffer, bytes);
  }
  return communicator.registrations().add(buffer, bytes);
}

void deregister_buffer(ncclComm_t handle, void* registration) {
  Communicator& communicator = communicator_of(handle, "ncclCommDeregister");
  if (registration == nullptr) return;
  if (!communicator.registrations().remove(registration)) {
    fail(ncclInvalidUsage, "ncclCommDeregister : handle {} is not a registration of this communicator", registration);
  }
}

}  // namespace nitinol
