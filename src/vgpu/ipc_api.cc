// The API's functions that share memory between processes. A handle says which file of which process holds the memory;
// the opener reaches it through /proc and checks by the file's name that it is still the same file. The name alone says
// whose it is: processes have other numbers in another PID namespace, as of a container, or two have the same.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "cuda_runtime_api.h"
#include "vgpu/capture.h"
#include "vgpu/engine.h"
#include "vgpu/memory.h"
#include "vgpu/memory_file.h"
#include "vgpu/runtime.h"

namespace nitinol::vgpu {
namespace {

constexpr uint32_t kMagic = 0x4e56474d;

struct Handle {
  uint32_t magic;
  int32_t process;
  int32_t fd;
  int32_t device;
  uint64_t offset;
  uint64_t size;
  uint64_t tag;
};
static_assert(sizeof(Handle) <= CUDA_IPC_HANDLE_SIZE);

// Memory of another process that is mapped here; opening it again only counts.
struct Opened {
  uint64_t tag;
  uint64_t offset;
  uint64_t size;  // of the allocation: what lies at the offset may be another by now
  void* mapping;
  size_t mapped;
  void* pointer;
  int count;
};

struct OpenedTable {
  std::mutex mutex;
  std::vector<Opened> entries;
};

OpenedTable& opened() {
  static OpenedTable* const instance = new OpenedTable;
  return *instance;
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Whether the descriptor, given by its name in /proc, is of that file.
bool has_tag(const std::string& descriptor, uint64_t tag) {
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, "nitinol-vgpu-%016llx", static_cast<unsigned long long>(tag));
  char name[256];
  const ssize_t length = readlink(descriptor.c_str(), name, sizeof name - 1);
  if (length < 0) return false;
  name[length] = '\0';
  return std::strstr(name, wanted) != nullptr;
}

// -1: the process does not hold it there. Nothing else is opened, which might wait or have an effect.
int open_of(const std::string& process, const Handle& handle) {
  const std::string descriptor = "/proc/" + process + "/fd/" + std::to_string(handle.fd);
  if (!has_tag(descriptor, handle.tag)) return -1;
  const int fd = beyond_standard_streams(open(descriptor.c_str(), O_RDWR | O_CLOEXEC));
  if (fd < 0 || has_tag("/proc/self/fd/" + std::to_string(fd), handle.tag)) return fd;
  close(fd);
  return -1;
}

// Of whichever process holds it, among those that can be seen from here.
int open_file(const Handle& handle) {
  int fd = open_of(std::to_string(handle.process), handle);
  std::error_code ended;
  std::filesystem::directory_iterator entry("/proc", ended);
  for (; fd < 0 && !ended && entry != std::filesystem::directory_iterator(); entry.increment(ended)) {
    const std::string name = entry->path().filename();
    if (std::isdigit(static_cast<unsigned char>(name.front())) != 0) fd = open_of(name, handle);
  }
  return fd;
}

cudaError_t map(const Handle& handle, Opened* entry) {
  const FileDescriptor file(open_file(handle));
  if (file.get() < 0) return cudaErrorMapBufferObjectFailed;
  const size_t inside = handle.offset % static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t length = inside + handle.size;
  void* mapping =
      mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), static_cast<off_t>(handle.offset - inside));
  if (mapping == MAP_FAILED) return cudaErrorMapBufferObjectFailed;
  *entry = {handle.tag, handle.offset, handle.size, mapping, length, static_cast<char*>(mapping) + inside, 1};
  return cudaSuccess;
}

cudaError_t open_handle(const Handle& handle, void** pointer) {
  OpenedTable& table = opened();
  std::lock_guard lock(table.mutex);
  for (Opened& entry : table.entries) {
    if (entry.tag != handle.tag || entry.offset != handle.offset || entry.size != handle.size) continue;
    ++entry.count;
    *pointer = entry.pointer;
    return cudaSuccess;
  }
  Opened entry{};
  if (cudaError_t error = map(handle, &entry)) return error;
  Allocation allocation;
  allocation.extent.base = reinterpret_cast<uintptr_t>(entry.pointer);
  allocation.size = handle.size;
  allocation.origin = Origin::kImported;
  allocation.type = cudaMemoryTypeDevice;
  allocation.device = thread_state().device;
  add_known(allocation);
  table.entries.push_back(entry);
  *pointer = entry.pointer;
  return cudaSuccess;
}

cudaError_t close_opened(void* pointer) {
  OpenedTable& table = opened();
  std::lock_guard lock(table.mutex);
  for (Opened& entry : table.entries) {
    if (entry.pointer != pointer) continue;
    if (--entry.count > 0) return cudaSuccess;
    remove_known(pointer, Origin::kImported);
    munmap(entry.mapping, entry.mapped);
    std::erase_if(table.entries, [&](const Opened& other) { return other.pointer == pointer; });
    return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}

}  // namespace
// What is declared in the global namespace: functions with C linkage are the same in any namespace.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* out, void* pointer) {
  return guarded([&] {
    if (out == nullptr || pointer == nullptr) return cudaErrorInvalidValue;
    if (cudaError_t error = check_unsafe_call()) return error;
    const std::optional<Allocation> allocation = find_allocation(pointer);
    if (!allocation || allocation->origin != Origin::kAllocated || allocation->type != cudaMemoryTypeDevice) {
      return cudaErrorInvalidValue;
    }
    const Extent& extent = allocation->extent;
    const Handle handle{kMagic, getpid(), extent.fd, allocation->device, extent.offset, allocation->size, extent.tag};
    std::memset(out, 0, sizeof *out);
    std::memcpy(out, &handle, sizeof handle);
    return cudaSuccess;
  });
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t in, unsigned flags) {
  return guarded([&] {
    Handle handle{};
    std::memcpy(&handle, &in, sizeof handle);
    if (pointer == nullptr || flags != cudaIpcMemLazyEnablePeerAccess) return cudaErrorInvalidValue;
    if (handle.magic != kMagic || handle.size == 0) return cudaErrorInvalidValue;
    if (cudaError_t error = check_unsafe_call()) return error;
    if (is_own_file(handle.tag)) return cudaErrorDeviceUninitialized;  // as CUDA: not in the process that made it
    return open_handle(handle, pointer);
  });
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  return guarded([&] {
    if (pointer == nullptr) return cudaErrorInvalidValue;
    if (cudaError_t error = check_unsafe_call()) return error;
    const std::optional<Allocation> allocation = find_allocation(pointer);
    if (!allocation || allocation->origin != Origin::kImported) return cudaErrorInvalidValue;
    synchronize_device(allocation->device);
    return close_opened(pointer);
  });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace nitinol::vgpu
