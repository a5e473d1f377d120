// The two buffers of a rank, allocated and registered as the user asked.
#pragma once

#include <cstddef>
#include <vector>

#include "library.h"

namespace nitinol::perf {

enum class Registration {
  kNone,    // memory of cudaMalloc
  kLocal,   // memory of ncclMemAlloc, ncclCommRegister
  kWindow,  // memory of ncclMemAlloc, ncclCommWindowRegister as symmetric windows
};

const char* registration_name(Registration registration);

class Buffers {
 public:
  /// Allocates on the current device. With registration the memory comes from `allocator`. The buffers begin `shift`
  /// bytes behind where their memory does.
  Buffers(const Library& allocator, Registration registration, size_t shift, size_t send_bytes, size_t recv_bytes);
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  void* send() const { return static_cast<char*>(send_.pointer) + shift_; }
  void* recv() const { return static_cast<char*>(recv_.pointer) + shift_; }

  /// Makes both known to a communicator. Windows are registered collectively: every rank must call, in a group where a
  /// thread calls for several ranks; the handles are there when the group has ended.
  void register_with(const Library& library, ncclComm_t comm);

  /// Undoes all. The communicators must still exist.
  void release();

 private:
  struct Block {
    void* pointer;
    size_t bytes;
  };
  struct Entry {
    const Library* library;
    ncclComm_t comm;
    void* handle;  // kLocal
    ncclWindow_t window;
  };

  Block allocate(size_t bytes) const;
  void free(Block& block) const;

  const Library& allocator_;
  Registration registration_;
  size_t shift_;
  Block send_;
  Block recv_;
  std::vector<Entry> entries_;
};

}  // namespace nitinol::perf
