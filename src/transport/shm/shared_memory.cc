// Shared memory as an anonymous file (memfd): it needs no file system, and the kernel frees it with its last user.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "base/file_size.h"
#include "base/log.h"
#include "transport/transport.h"

namespace nitinol {

namespace {

std::byte* map_or_fail(size_t bytes, int flags, int fd) {
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (address == MAP_FAILED) fail_errno(errno, formatted("mapping {} bytes of shared memory failed", bytes));
  return static_cast<std::byte*>(address);
}

}  // namespace

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), fd_(std::move(other.fd_)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

SharedMemory SharedMemory::create(size_t bytes, bool shareable) {
  SharedMemory memory;
  if (!shareable) {
    memory.data_ = map_or_fail(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    memory.bytes_ = bytes;
    ::madvise(memory.data_, bytes, MADV_NOHUGEPAGE);  // touching a byte must not cost megabytes
    log_info(Subsystem::kAllocHost, "{} bytes of memory at {}", bytes, static_cast<const void*>(memory.data_));
    return memory;
  }
  memory.fd_ = UniqueFd(::memfd_create("nitinol", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.fd_)
    fail_errno(errno, "memfd_create failed (shared memory between processes; is the limit of open files reached?)");
  set_file_size(memory.fd_.get(), bytes, "shared memory");
  // Peers rely on the pages staying: touching a page beyond the end of a file would kill them.
  if (::fcntl(memory.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail_errno(errno, "sealing shared memory failed");
  }
  memory.data_ = map_or_fail(bytes, MAP_SHARED, memory.fd_.get());
  memory.bytes_ = bytes;
  log_info(Subsystem::kAllocHost, "{} bytes of shared memory at {}", bytes, static_cast<const void*>(memory.data_));
  return memory;
}

SharedMemory SharedMemory::map(const MemoryHandle& handle, size_t bytes) {
  struct stat status {};
  if (::fstat(handle.fd.get(), &status) != 0) fail_errno(errno, "a peer's shared memory cannot be examined");
  const int seals = ::fcntl(handle.fd.get(), F_GET_SEALS);
  if (bytes == 0 || static_cast<uint64_t>(status.st_size) < bytes || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    fail(ncclRemoteError, "a peer offered shared memory of {} bytes{} where {} fixed ones are needed", status.st_size,
         seals >= 0 && (seals & F_SEAL_SHRINK) != 0 ? "" : " that may shrink", bytes);
  }
  SharedMemory memory;
  memory.data_ = map_or_fail(bytes, MAP_SHARED, handle.fd.get());
  memory.bytes_ = bytes;
  return memory;
}

MemoryHandle SharedMemory::share() const {
  if (!fd_) fail(ncclInternalError, "memory that was made private to the process cannot be shared");
  const int copy = ::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) fail_errno(errno, "duplicating the descriptor of shared memory failed");
  return MemoryHandle{UniqueFd(copy), bytes_};
}

}  // namespace nitinol
