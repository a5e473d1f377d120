// The C API: thin functions over comm/. Each body is one expression of what the call means.
#include "nccl.h"

#include <cstddef>
#include <memory>

#include "api/entry.h"
#include "base/last_error.h"
#include "base/settings.h"
#include "comm/create.h"
#include "comm/departure.h"
#include "comm/group.h"
#include "comm/handle.h"
#include "comm/memory.h"
#include "comm/operations.h"
#include "comm/repair.h"

using namespace nitinol;

namespace {

void require(const void* pointer, const char* function, const char* argument) {
  if (pointer == nullptr) fail(ncclInvalidArgument, "{} : {} argument is NULL", function, argument);
}

/// Whatever goes wrong, nobody is to take what stood there for a communicator.
void clear(ncclComm_t* handle) {
  if (handle != nullptr) *handle = nullptr;
}

/// The communicator that is ended, in a group, too.
std::shared_ptr<Communicator> take(ncclComm_t handle, const char* function) {
  std::shared_ptr<Communicator> communicator = release_handle(handle, function);
  group::begin_early(*communicator);
  return communicator;
}

}  // namespace

// ---- The library ---------------------------------------------------------------------------------------------------

NITINOL_ENTRY(ncclResult_t, ncclGetVersion, (int* version)) {
  return at_once(nullptr, [&] {
    require(version, "ncclGetVersion", "version");
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
  });
}

NITINOL_ENTRY(const char*, ncclGetErrorString, (ncclResult_t result)) {
  switch (static_cast<int>(result)) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

NITINOL_ENTRY(const char*, ncclGetLastError, (ncclComm_t comm)) {
  const char* const own = last_error_of(comm);
  return own != nullptr ? own : last_error();
}

NITINOL_ENTRY(void, ncclResetDebugInit, ()) {
  static_cast<void>(at_once(nullptr, [] {
    reset_log();
    return ncclSuccess;
  }));
}

// ---- Making and ending communicators -------------------------------------------------------------------------------

NITINOL_ENTRY(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * uniqueId)) {
  return at_once(nullptr, [&] {
    require(uniqueId, "ncclGetUniqueId", "uniqueId");
    *uniqueId = create_id();
    log_call("ncclGetUniqueId()");
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank)) {
  return grouped(nullptr, [&] {
    clear(comm);
    create(comm, nranks, {&commId, 1}, rank, nullptr, "ncclCommInitRank");
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommInitRankConfig,
              (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config)) {
  return grouped(nullptr, [&] {
    clear(comm);
    create(comm, nranks, {&commId, 1}, rank, config, "ncclCommInitRankConfig");
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommInitRankScalable,
              (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds, ncclConfig_t* config)) {
  return grouped(nullptr, [&] {
    clear(newcomm);
    require(commIds, "ncclCommInitRankScalable", "commIds");
    if (nId < 1) fail(ncclInvalidArgument, "ncclCommInitRankScalable : invalid number of ids {}", nId);
    create(newcomm, nranks, {commIds, static_cast<size_t>(nId)}, myrank, config, "ncclCommInitRankScalable");
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int ndev, const int* devlist)) {
  return guarded([&] {
    log_call("ncclCommInitAll(comms {}, ndev {}, devlist {})", static_cast<void*>(comms), ndev,
             static_cast<const void*>(devlist));
    create_all(comms, ndev, devlist);
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommSplit,
              (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config)) {
  return grouped(comm, [&] {
    clear(newcomm);
    split(comm, color, key, newcomm, config);
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommShrink,
              (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm, ncclConfig_t* config,
               int shrinkFlags)) {
  return grouped(comm, [&] {
    clear(newcomm);
    require(comm, "ncclCommShrink", "comm");
    require(excludeRanksList, "ncclCommShrink", "excludeRanksList");
    if (excludeRanksCount < 1) fail(ncclInvalidArgument, "ncclCommShrink : {} ranks to exclude", excludeRanksCount);
    shrink({comm, {excludeRanksList, static_cast<size_t>(excludeRanksCount)}, newcomm, config, shrinkFlags});
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags)) {
  if (comm == nullptr) return ncclSuccess;
  return grouped(comm, [&] {
    log_call("ncclCommRevoke(comm {}, flags {})", static_cast<void*>(comm), revokeFlags);
    revoke(comm, revokeFlags);
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  return grouped(comm, [&] {
    log_call("ncclCommFinalize(comm {})", static_cast<void*>(comm));
    Job job;
    job.communicator = shared_communicator_of(comm, "ncclCommFinalize");
    if (!group::require(*job.communicator, Call::kFinalise, "ncclCommFinalize")) return;
    job.leads_to = Stage::kFinalising;
    group::record_for(*job.communicator, [&] {
      job.run = [communicator = job.communicator] { finalise(communicator); };
      group::add(job);
    });
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  return guarded([&] {
    log_call("ncclCommDestroy(comm {})", static_cast<void*>(comm));
    if (communicator_of(comm, "ncclCommDestroy").is_inherited()) return ncclSuccess;
    const std::shared_ptr<Communicator> communicator = take(comm, "ncclCommDestroy");
    if (!group::leave_at_the_end(communicator)) destroy(communicator);
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  return guarded([&] {
    log_call("ncclCommAbort(comm {})", static_cast<void*>(comm));
    if (communicator_of(comm, "ncclCommAbort").is_inherited()) return ncclSuccess;
    abort(take(comm, "ncclCommAbort"));
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* asyncError)) {
  return at_once(comm, [&] {
    const Communicator& communicator = communicator_of(comm, "ncclCommGetAsyncError");
    communicator.require_own("ncclCommGetAsyncError");
    require(asyncError, "ncclCommGetAsyncError", "asyncError");
    *asyncError = communicator.state();
    return ncclSuccess;
  });
}

// ---- Questions -----------------------------------------------------------------------------------------------------

NITINOL_ENTRY(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int* count)) {
  return at_once(comm, [&] {
    const Communicator& communicator = communicator_of(comm, "ncclCommCount");
    require(count, "ncclCommCount", "count");
    communicator.require_initialised("ncclCommCount");
    *count = communicator.ranks();
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int* device)) {
  return at_once(comm, [&] {
    const Communicator& communicator = communicator_of(comm, "ncclCommCuDevice");
    require(device, "ncclCommCuDevice", "device");
    communicator.require_initialised("ncclCommCuDevice");
    *device = communicator.device();
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int* rank)) {
  return at_once(comm, [&] {
    const Communicator& communicator = communicator_of(comm, "ncclCommUserRank");
    require(rank, "ncclCommUserRank", "rank");
    communicator.require_initialised("ncclCommUserRank");
    *rank = communicator.rank();
    return ncclSuccess;
  });
}

// ---- Memory --------------------------------------------------------------------------------------------------------

NITINOL_ENTRY(ncclResult_t, ncclMemAlloc, (void** ptr, size_t size)) {
  return at_once(nullptr, [&] {
    require(ptr, "ncclMemAlloc", "ptr");
    *ptr = allocate(size);
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclMemFree, (void* ptr)) {
  return at_once(nullptr, [&] {
    release(ptr);
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void* buff, size_t size, void** handle)) {
  return at_once(comm, [&] {
    require(handle, "ncclCommRegister", "handle");
    *handle = register_buffer(comm, buff, size);
    log_call("ncclCommRegister(comm {}, buff {}, size {}) = {}", static_cast<void*>(comm), buff, size, *handle);
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void* handle)) {
  return at_once(comm, [&] {
    log_call("ncclCommDeregister(comm {}, handle {})", static_cast<void*>(comm), handle);
    deregister_buffer(comm, handle);
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommWindowRegister,
              (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags)) {
  return at_once(comm, [&] {
    require(win, "ncclCommWindowRegister", "win");
    *win = register_window(comm, buff, size, winFlags);
    log_call("ncclCommWindowRegister(comm {}, buff {}, size {}, flags {}) = {}", static_cast<void*>(comm), buff, size,
             winFlags, static_cast<const void*>(*win));
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  return at_once(comm, [&] {
    deregister_window(comm, win);
    return ncclSuccess;
  });
}

// ---- Reduction operators -------------------------------------------------------------------------------------------

NITINOL_ENTRY(ncclResult_t, ncclRedOpCreatePreMulSum,
              (ncclRedOp_t * op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence,
               ncclComm_t comm)) {
  return at_once(comm, [&] {
    constexpr const char* kName = "ncclRedOpCreatePreMulSum";
    Communicator& communicator = communicator_of(comm, kName);
    communicator.require_ready(kName, Call::kRegister);
    require(op, kName, "op");
    require(scalar, kName, "scalar");
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate) {
      fail(ncclInvalidArgument, "{} : invalid residence {}", kName, static_cast<int>(residence));
    }
    *op = communicator.operators().create(scalar, checked_type(datatype, kName), residence);
    log_call("{}(op {}, scalar {}, datatype {}, residence {}, comm {})", kName, static_cast<int>(*op), scalar,
             static_cast<int>(datatype), static_cast<int>(residence), static_cast<void*>(comm));
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  return at_once(comm, [&] {
    if (comm == nullptr) fail(ncclInvalidArgument, "ncclRedOpDestroy : invalid communicator passed.");
    log_call("ncclRedOpDestroy(op {}, comm {})", static_cast<int>(op), static_cast<void*>(comm));
    communicator_of(comm, "ncclRedOpDestroy").operators().destroy(op, "ncclRedOpDestroy");
    return ncclSuccess;
  });
}

// ---- Groups --------------------------------------------------------------------------------------------------------

NITINOL_ENTRY(ncclResult_t, ncclGroupStart, ()) {
  return guarded([] {
    static_cast<void>(settings());
    log_call("ncclGroupStart()");
    group::start();
    return ncclSuccess;
  });
}

NITINOL_ENTRY(ncclResult_t, ncclGroupEnd, ()) {
  return guarded([] {
    log_call("ncclGroupEnd()");
    return group::end();
  });
}

NITINOL_ENTRY(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * simInfo)) {
  return guarded([&]() -> ncclResult_t {
    constexpr unsigned kMagic = 0x74685283;
    const group::Simulated simulated = group::simulate();
    if (!simulated.outermost) return ncclSuccess;
    const std::size_t needed = offsetof(ncclSimInfo_t, estimatedTime) + sizeof simInfo->estimatedTime;
    if (simInfo != nullptr && (simInfo->magic != kMagic || simInfo->size < needed)) {
      fail(ncclInvalidArgument, "ncclGroupSimulateEnd : simInfo was not initialised with NCCL_SIM_INFO_INITIALIZER");
    }
    if (simulated.jobs) {
      fail(ncclInvalidUsage,
           "ncclGroupSimulateEnd: calls that make, revoke or finalize communicators are not simulated, and were not "
           "carried out");
    }
    if (simInfo != nullptr && simulated.us) simInfo->estimatedTime = static_cast<float>(*simulated.us);
    return ncclSuccess;
  });
}
