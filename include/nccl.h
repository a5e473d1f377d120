/* The C interface of NCCL 2.28.9, as Nitinol implements it: same names, values and layouts, so that programs built
 * against either header run on either library. Each function ncclX has a twin pncclX with the same behaviour: a
 * profiler may define ncclX itself and call pncclX. Unless noted otherwise a function returns a result code, and
 * ncclGetLastError explains one that is not ncclSuccess. */
#ifndef NCCL_H_
#define NCCL_H_

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <limits.h>
#include <stddef.h>
#if CUDART_VERSION >= 11000
#include <cuda_bf16.h>
#endif
#if defined(__cplusplus) && CUDART_VERSION >= 11080
#include <cuda_fp8.h>
#endif

/* ---- Version. Up to 2.8 the code is X * 1000 + Y * 100 + Z, later X * 10000 + Y * 100 + Z. */

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE 22809
#define NCCL_VERSION(X, Y, Z) (((X) <= 2 && (Y) <= 8 ? (X)*1000 : (X)*10000) + (Y)*100 + (Z))

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Handles. */

typedef struct ncclComm* ncclComm_t;            /* one rank of a communicator */
typedef struct ncclWindow_vidmem* ncclWindow_t; /* a registered window; opaque to the host */
#define NCCL_COMM_NULL NULL

/* What rank 0 hands to all ranks, by any means, so that they find each other: plain bytes. Passed by value. */
#define NCCL_UNIQUE_ID_BYTES 128
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

/* ---- Result codes. All but success, in progress and invalid argument may mean that the communicator has failed:
   ncclCommGetAsyncError tells. Then it is fit only for ncclCommAbort and ncclCommDestroy, and for ncclCommRevoke and
   ncclCommShrink with NCCL_SHRINK_ABORT. */

typedef enum {
  ncclSuccess = 0,            /* done; for operations: in the stream */
  ncclUnhandledCudaError = 1, /* a CUDA call failed */
  ncclSystemError = 2,        /* a system call failed */
  ncclInternalError = 3,      /* a defect of the library */
  ncclInvalidArgument = 4,    /* a value that cannot be right; nothing was changed */
  ncclInvalidUsage = 5,       /* not allowed in the present circumstances */
  ncclRemoteError = 6,        /* a peer died or the network failed */
  ncclInProgress = 7,         /* not an error: the call goes on in the background */
  ncclNumResults = 8
} ncclResult_t;

/* ---- Options of a communicator. Start from NCCL_CONFIG_INITIALIZER; an undefined field takes its default, and an
   environment variable of the same meaning wins over the field. A value that is out of range gives ncclInvalidArgument;
   too many CTAs are taken for as many as there may be. In this version blocking, commName and, on GPUs, as the
   ranks agree when they meet, CTAPolicy, minCTAs, maxCTAs and cgaClusterSize have an effect, the others none. */

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_UNDEF_FLOAT -1.0f

/* CTAPolicy, a set of flags: the fastest; few CTAs, to leave room for compute; none (in this version: few, too). */
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02

typedef struct ncclConfig_v22800 {
  size_t size; /* these three belong to the initialiser */
  unsigned int magic;
  unsigned int version;
  int blocking;       /* 1: calls may wait for other ranks (default); 0: they return ncclInProgress instead */
  int cgaClusterSize; /* thread-block cluster size, 0..8 */
  int minCTAs;        /* fewest and most CTAs of an operation on GPUs, 1..64 */
  int maxCTAs;
  const char* netName;     /* network to insist on, case ignored: "Socket", "IB" or a plugin's name */
  int splitShare;          /* 1: children of ncclCommSplit may share resources with this communicator */
  int trafficClass;        /* handed to the network, >= 0 */
  const char* commName;    /* free text for logs and profilers */
  int collnetEnable;       /* 1: reduction inside the network where there is any */
  int CTAPolicy;           /* NCCL_CTA_POLICY_* */
  int shrinkShare;         /* as splitShare, for ncclCommShrink */
  int nvlsCTAs;            /* CTAs of kernels that use NVLink multicast */
  int nChannelsPerNetPeer; /* network channels for send and receive with one peer */
  int nvlinkCentricSched;  /* 1: schedule for NVLink first */
} ncclConfig_t;

/* clang-format off */
#define NCCL_CONFIG_INITIALIZER {                                                                                   \
  sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH),                               \
  NCCL_CONFIG_UNDEF_INT /* blocking */,      NCCL_CONFIG_UNDEF_INT /* cgaClusterSize */,                            \
  NCCL_CONFIG_UNDEF_INT /* minCTAs */,       NCCL_CONFIG_UNDEF_INT /* maxCTAs */,                                   \
  NCCL_CONFIG_UNDEF_PTR /* netName */,       NCCL_CONFIG_UNDEF_INT /* splitShare */,                                \
  NCCL_CONFIG_UNDEF_INT /* trafficClass */,  NCCL_CONFIG_UNDEF_PTR /* commName */,                                  \
  NCCL_CONFIG_UNDEF_INT /* collnetEnable */, NCCL_CONFIG_UNDEF_INT /* CTAPolicy */,                                 \
  NCCL_CONFIG_UNDEF_INT /* shrinkShare */,   NCCL_CONFIG_UNDEF_INT /* nvlsCTAs */,                                  \
  NCCL_CONFIG_UNDEF_INT /* nChannelsPerNetPeer */, NCCL_CONFIG_UNDEF_INT /* nvlinkCentricSched */ }
/* clang-format on */

/* ---- What ncclGroupSimulateEnd is to answer. Start from NCCL_SIM_INFO_INITIALIZER. */

typedef struct ncclSimInfo_v22200 {
  size_t size; /* these three belong to the initialiser */
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* microseconds; NCCL_UNDEF_FLOAT: nothing to estimate */
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER \
  { sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), NCCL_UNDEF_FLOAT }

/* ---- Flags and markers of single functions. */

#define NCCL_SPLIT_NOCOLOR -1 /* ncclCommSplit: join no new communicator */
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01
#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_WIN_DEFAULT 0x00        /* ncclCommWindowRegister: any offset may be used */
#define NCCL_WIN_COLL_SYMMETRIC 0x01 /* all ranks promise equal offsets in each collective */
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096

/* ---- Types of data, reductions, and where the scalar of a reduction lives. */

typedef enum {
  ncclInt8 = 0,
  ncclChar = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6, /* IEEE half precision */
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclDouble = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

/* Exists for the width of its values only. */
typedef enum { ncclNumOps_dummy = 5 } ncclRedOp_dummy_t;

typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,    /* the sum divided by the number of ranks */
  ncclNumOps = 5, /* from here on: operators made by the user */
  ncclMaxRedOp = 0x7fffffff >> (32 - 8 * sizeof(ncclRedOp_dummy_t))
} ncclRedOp_t;

typedef enum {
  ncclScalarDevice = 0,       /* read while each operation runs: keep it until they are done */
  ncclScalarHostImmediate = 1 /* read before the creating call returns */
} ncclScalarResidence_t;

/* ---- The library itself. None of these needs a GPU or a communicator. */

/* Stores the version code of the loaded library (compare with NCCL_VERSION_CODE). NULL: ncclInvalidArgument. */
ncclResult_t ncclGetVersion(int* version);
ncclResult_t pncclGetVersion(int* version);

/* A fixed English text for a result code; never NULL, also for values that are no code. Belongs to the library. */
const char* ncclGetErrorString(ncclResult_t result);
const char* pncclGetErrorString(ncclResult_t result);

/* The sentence that goes with the failure of `comm` if that has failed, else with the latest call with it that failed;
   if there is none, and for NULL, the one that goes with the latest error or warning of this process, "" before the
   first. It says what failed, where, and what to try, and is
   kept whether or not logging is on. Later successes do not clear it. */
const char* ncclGetLastError(ncclComm_t comm);
const char* pncclGetLastError(ncclComm_t comm);

/* Makes the library read the logging variables (NCCL_DEBUG and its relatives) once more. */
__attribute__((
    deprecated("not a supported part of the API; set the logging variables before the first call instead"))) void
ncclResetDebugInit(void);
__attribute__((
    deprecated("not a supported part of the API; set the logging variables before the first call instead"))) void
pncclResetDebugInit(void);

/* ---- Making communicators. A communicator object is one rank: it is bound to the device that is current when it is
   made. All ranks are on one host in this version, else ncclInvalidUsage. */

/* Makes an id for one communicator and opens the rendezvous point in this process, which must live until the
   communicator exists. One process calls it and carries the bytes to all ranks. ncclInvalidUsage when no network
   interface passes the filters. */
ncclResult_t ncclGetUniqueId(ncclUniqueId* uniqueId);
ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId);

/* Makes rank `rank` of a communicator of `nranks` ranks; collective over all of them. A thread that makes several ranks
   does so inside a group: it has the handle at once then, of what exists after the group's end, or has failed.
   Errors: NULL output, nranks < 1 or rank outside 0..nranks-1 give ncclInvalidArgument; a rank that stays away for
   NITINOL_INIT_TIMEOUT seconds (300) gives ncclRemoteError or ncclSystemError on the others. */
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);
ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank);

/* The same with options; NULL means the defaults. With `blocking` 0 it returns ncclInProgress and a handle to poll. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config);
ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config);

/* The same with nId rendezvous points (1..nranks ids, equal and in equal order on all ranks). With r = nranks mod nId
   and q = nranks / nId, the first r ids serve q+1 consecutive ranks each, the others q ranks each. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                                      ncclConfig_t* config);
ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds,
                                       ncclConfig_t* config);

/* One thread makes all `ndev` ranks of a communicator; comms has room for ndev handles. Rank i sits on device
   devlist[i], or on device i when devlist is NULL. Always blocking; inside a group they are made at its end. */
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int ndev, const int* devlist);
ncclResult_t pncclCommInitAll(ncclComm_t* comms, int ndev, const int* devlist);

/* Collective over `comm`: ranks that pass the same color (>= 0) form a new communicator, ordered by key, then by old
   rank; a rank that passes NCCL_SPLIT_NOCOLOR takes part and gets NULL. NULL config: the parent's. Nothing may be
   outstanding on the parent. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);
ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config);

/* Collective over the ranks that are not in the list, which must have one at least: a new communicator without those
   that are. shrinkFlags:
   NCCL_SHRINK_DEFAULT (the parent is idle) or NCCL_SHRINK_ABORT (its outstanding operations are stopped first). The
   parent stays the caller's to end. */
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
                            ncclConfig_t* config, int shrinkFlags);
ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
                             ncclConfig_t* config, int shrinkFlags);

/* ---- Ending and repairing communicators. A NULL communicator is accepted by all of these but the state query, and
   does nothing. */

/* Collective: completes what was issued and tells the peers, for which it waits no more than a second once they need
   nothing of this rank. Afterwards only queries, destroy and abort are allowed. With a communicator that was stopped to
   be shrunk it does nothing. */
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t pncclCommFinalize(ncclComm_t comm);

/* Frees the communicator, after finalising it if that was not done (all ranks must then call it). The
   handle is dead afterwards. Of a communicator that has failed or was revoked it is what ncclCommAbort is. */
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t pncclCommDestroy(ncclComm_t comm);

/* Stops every operation that has not completed, then frees the communicator. A failure to those ranks alone that wait
   for this one. Valid in error states. */
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t pncclCommAbort(ncclComm_t comm);

/* Stops what is in flight and frees nothing; afterwards split, shrink, destroy and abort are allowed. revokeFlags:
   NCCL_REVOKE_DEFAULT. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags);
ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags);

/* Stores the communicator's state: ncclSuccess, ncclInProgress, or the error that struck it. Never blocks; from any
   thread. NULL: ncclInvalidArgument. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);
ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError);

/* ---- Queries. A communicator that is still being made, or has failed, answers with its state. NULL:
 * ncclInvalidArgument. */

/* Number of ranks. */
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count);
ncclResult_t pncclCommCount(const ncclComm_t comm, int* count);

/* Index of the CUDA device that this rank is bound to. */
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device);
ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device);

/* The caller's rank, 0..count-1. */
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank);
ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank);

/* ---- Memory for communication. Sizes are bytes. */

/* Allocates `size` bytes on the current device in the form that the zero-copy paths can use. Free with ncclMemFree. */
ncclResult_t ncclMemAlloc(void** ptr, size_t size);
ncclResult_t pncclMemAlloc(void** ptr, size_t size);

/* Frees memory of ncclMemAlloc; registrations of it must have ended. */
ncclResult_t ncclMemFree(void* ptr);
ncclResult_t pncclMemFree(void* ptr);

/* Announces that buff[0..size) will be communicated from, and gives a handle to end that. It may change speed, never
   results; in this version neither. */
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);
ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle);

/* Ends a registration; no operation may be using the buffer. Do it before freeing the memory. */
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle);
ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle);

/* Collective: registers this rank's buffer as its part of a window. winFlags: NCCL_WIN_DEFAULT or
   NCCL_WIN_COLL_SYMMETRIC, equal everywhere. The buffer must start at a multiple of NCCL_WIN_REQUIRED_ALIGNMENT bytes.
   It changes no results and, in this version, makes nothing faster. With NCCL_WIN_ENABLE=0 it stores NULL. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags);
ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags);

/* Ends this rank's part of a window. A NULL window succeeds. */
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);

/* ---- Reduction operators of the user's own. */

/* Makes an operator that multiplies each input of this rank by *scalar (one value of `datatype`) and sums over ranks.
   It is good for this communicator and data type only. `residence` says when the scalar is read. */
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm);

/* Ends an operator; operations already issued with it are not affected. */
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);

/* ---- Collectives. Counts are elements. n is the number of ranks, r the caller's; rank-ordered blocks follow each
   other without gaps. All return when the operation is in the stream; the stream orders it, and its completion is seen
   with CUDA's means. In place is recognised by address as noted; other overlap of the buffers is undefined. Bad
   arguments: ncclInvalidArgument, nothing changed. */

/* Every rank receives the reduction over all ranks of `count` elements. In place: sendbuff == recvbuff. */
ncclResult_t ncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream);

/* The reduction arrives at `root` only; recvbuff is not used elsewhere. In place: sendbuff == recvbuff. */
ncclResult_t ncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                         int root, ncclComm_t comm, cudaStream_t stream);

/* Every rank receives root's `count` elements; sendbuff is used at root only. In place: sendbuff == recvbuff. */
ncclResult_t ncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                            ncclComm_t comm, cudaStream_t stream);

/* ncclBroadcast in place, the older form. */
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream);
ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                        cudaStream_t stream);

/* sendbuff: sendcount; recvbuff: n * sendcount, block i from rank i. In place: sendbuff == recvbuff + r * sendcount. */
ncclResult_t ncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                            ncclComm_t comm, cudaStream_t stream);

/* sendbuff: n * recvcount; recvbuff: recvcount, block r of the reduction. In place: recvbuff == sendbuff + r *
   recvcount. */
ncclResult_t ncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);

/* Both buffers: n * count; block j goes to rank j, block i came from rank i. Not in place. */
ncclResult_t ncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                          cudaStream_t stream);
ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                           cudaStream_t stream);

/* Root's recvbuff: n * count, block i from rank i. In place at root: sendbuff == recvbuff + root * count. */
ncclResult_t ncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream);

/* Root's sendbuff: n * count, block i to rank i. In place at root: recvbuff == sendbuff + root * count. */
ncclResult_t ncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream);
ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                          ncclComm_t comm, cudaStream_t stream);

/* ---- Point to point. A send matches the peer's receive in order, with equal count and type; transfers that must run
   together (also to oneself) belong into one group. */

/* Sends `count` elements to rank `peer`. */
ncclResult_t ncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream);

/* Receives `count` elements from rank `peer`. */
ncclResult_t ncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream);

/* ---- Groups. They belong to the calling thread and nest; only the outermost end acts. */

/* Opens a group: calls on communicators are recorded until its end. */
ncclResult_t ncclGroupStart(void);
ncclResult_t pncclGroupStart(void);

/* Closes it and issues what was recorded. Without an open group: ncclInvalidUsage. */
ncclResult_t ncclGroupEnd(void);
ncclResult_t pncclGroupEnd(void);

/* Closes it without issuing anything, and stores in *simInfo what its operations would take, in microseconds; a group
   without any leaves *simInfo alone, as does the end of one within another. NULL is accepted. ncclInvalidUsage if the
   group makes, revokes or finalizes communicators. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* simInfo);
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
