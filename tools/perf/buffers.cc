// Allocation and registration.
#include "buffers.h"

#include <algorithm>

namespace nitinol::perf {
namespace {

constexpr size_t kPage = NCCL_WIN_REQUIRED_ALIGNMENT;

}  // namespace

const char* registration_name(Registration registration) {
  switch (registration) {
    case Registration::kNone: return "none";
    case Registration::kLocal: return "local";
    case Registration::kWindow: return "window";
  }
  return "";
}

Buffers::Buffers(const Library& allocator, Registration registration, size_t shift, size_t send_bytes,
                 size_t recv_bytes)
    : allocator_(allocator),
      registration_(registration),
      shift_(shift),
      send_(allocate(shift + send_bytes)),
      recv_(allocate(shift + recv_bytes)) {
  entries_.reserve(16);  // the library writes handles into entries when a group ends: they must stay where they are
}

Buffers::Block Buffers::allocate(size_t bytes) const {
  Block block{nullptr, std::max<size_t>(1, (bytes + kPage - 1) / kPage) * kPage};
  if (registration_ == Registration::kNone) {
    check_cuda(cudaMalloc(&block.pointer, block.bytes), "cudaMalloc");
    return block;
  }
  const auto& nccl = allocator_.nccl();
  if (!nccl.mem_alloc || !nccl.mem_free)
    throw PerfError(allocator_.path() + " has no ncclMemAlloc; leave out --register");
  allocator_.check(nccl.mem_alloc(&block.pointer, block.bytes), "ncclMemAlloc");
  return block;
}

void Buffers::free(Block& block) const {
  if (registration_ == Registration::kNone) {
    check_cuda(cudaFree(block.pointer), "cudaFree");
  } else {
    allocator_.check(allocator_.nccl().mem_free(block.pointer), "ncclMemFree");
  }
  block.pointer = nullptr;
}

void Buffers::register_with(const Library& library, ncclComm_t comm) {
  const auto& nccl = library.nccl();
  for (const Block& block : {send_, recv_}) {
    if (registration_ == Registration::kNone) return;
    entries_.push_back({&library, comm, nullptr, nullptr});
    Entry& entry = entries_.back();
    if (registration_ == Registration::kLocal) {
      if (!nccl.comm_register) throw PerfError(library.path() + " has no ncclCommRegister; leave out --register");
      library.check(nccl.comm_register(comm, block.pointer, block.bytes, &entry.handle), "ncclCommRegister");
    } else {
      if (!nccl.window_register) throw PerfError(library.path() + " has no windows; leave out --register window");
      library.check(nccl.window_register(comm, block.pointer, block.bytes, &entry.window, NCCL_WIN_COLL_SYMMETRIC),
                    "ncclCommWindowRegister");
    }
  }
}

void Buffers::release() {
  for (const Entry& entry : entries_) {
    const auto& nccl = entry.library->nccl();
    if (entry.handle != nullptr)
      entry.library->check(nccl.comm_deregister(entry.comm, entry.handle), "ncclCommDeregister");
    if (entry.window != nullptr) {
      entry.library->check(nccl.window_deregister(entry.comm, entry.window), "ncclCommWindowDeregister");
    }
  }
  entries_.clear();
  free(send_);
  free(recv_);
}

}  // namespace nitinol::perf
