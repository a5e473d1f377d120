// Making communicators: the calls of the API, checked and turned into jobs of the thread's group.
#pragma once

#include <span>

#include "nccl.h"

namespace nitinol {

/// An id for a new communicator, with this process as the rendezvous. Throws Error.
ncclUniqueId create_id();

/// One rank, on the calling thread's device. `handle` is set at once for a non-blocking communicator, else when the
/// group ends, and is null if that fails. Throws Error.
void create(ncclComm_t* handle, int ranks, std::span<const ncclUniqueId> ids, int rank, const ncclConfig_t* config,
            const char* function);

/// All ranks of a clique of devices, in one group of their own; returns when they exist.
void create_all(ncclComm_t* handles, int devices, const int* device_list);

/// Collective over `parent`. `handle` as for create; null for NCCL_SPLIT_NOCOLOR.
void split(ncclComm_t parent, int color, int key, ncclComm_t* handle, const ncclConfig_t* config);

}  // namespace nitinol
