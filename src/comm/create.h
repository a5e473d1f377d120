// Making communicators: the calls of the API, checked and turned into jobs of the thread's group.
#pragma once

#include <memory>
#include <span>

#include "nccl.h"

namespace nitinol {

class Communicator;
struct Job;

/// An id for a new communicator, with this process as the rendezvous. Throws Error.
ncclUniqueId create_id();

/// One rank, on the calling thread's device. `handle` is set at once for a non-blocking communicator, and in a group of
/// the program's, as what it points to may be gone when that ends (the communicator has failed then if the group does);
/// else when it is made, and is null if that fails. Throws Error.
void create(ncclComm_t* handle, int ranks, std::span<const ncclUniqueId> ids, int rank, const ncclConfig_t* config,
            const char* function);

/// All ranks of a clique of devices, in one group of their own; returns when they exist.
void create_all(ncclComm_t* handles, int devices, const int* device_list);

/// Collective over `parent`. `handle` is set at once for a non-blocking communicator, else when the group ends, and is
/// null if that fails and for NCCL_SPLIT_NOCOLOR.
void split(ncclComm_t parent, int color, int key, ncclComm_t* handle, const ncclConfig_t* config);

/// Collective over the ranks of `parent` that are not excluded. `handle` as for split.
struct ShrinkCall {
  ncclComm_t parent = nullptr;
  std::span<const int> excluded;
  ncclComm_t* handle = nullptr;
  const ncclConfig_t* config = nullptr;
  int flags = 0;
};
void shrink(const ShrinkCall& call);

/// The caller gets a handle to `made`: at once if the job runs in the background, else when it has succeeded.
void hand_over(Job& job, std::shared_ptr<Communicator> made, ncclComm_t* handle);

}  // namespace nitinol
