// What an ncclComm_t points to. Handles are never returned to the allocator while stale copies are likely to be used:
// a destroyed communicator is recognised, not followed.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include "nccl.h"

namespace nitinol {
class Communicator;
}

struct ncclComm {
  uint64_t magic = 0;
  std::shared_ptr<nitinol::Communicator> communicator;
  ncclComm* next_unused = nullptr;
};

namespace nitinol {

/// Room for a handle, by which the log knows a communicator before anybody has it.
ncclComm_t reserve_handle();
/// Makes it the communicator's; null: gives the room back.
ncclComm_t use_handle(ncclComm_t reserved, std::shared_ptr<Communicator> communicator) noexcept;

/// Ends the handle; its communicator is returned. Throws as communicator_of does.
std::shared_ptr<Communicator> release_handle(ncclComm_t handle, const char* function);

/// The communicator behind a handle. Throws Error(ncclInvalidArgument) if it is NULL, destroyed, or none of ours.
Communicator& communicator_of(ncclComm_t handle, const char* function);
std::shared_ptr<Communicator> shared_communicator_of(ncclComm_t handle, const char* function);

/// The communicator's last error; null if there is none, or the handle is no live communicator's.
const char* last_error_of(ncclComm_t handle) noexcept;
/// A call with the communicator has failed; nothing if the handle is no live communicator's.
void note_failed_call(ncclComm_t handle, const std::exception& thrown) noexcept;

}  // namespace nitinol
