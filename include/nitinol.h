/* Nitinol's own extensions to the NCCL API. Everything here may also be looked up with dlsym: programs that must run on
 * other libraries too should do that. */
#ifndef NITINOL_H_
#define NITINOL_H_

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NITINOL_VERSION_CODE 100

/* An operation of the communicator that makes no progress for so many seconds fails, on every rank, with a sentence
 * that names the ranks that have not come and what they do instead (ncclGetLastError). Overrides NITINOL_TIMEOUT for
 * this communicator, on this rank, for operations that run or are issued later, and for finalize, destroy and split;
 * 0: no limit (but NITINOL_INIT_TIMEOUT for split; finalize and destroy then wait a second for ranks that need nothing
 * of this one, else as long). Milliseconds count. Less than 0 or more than 1e9:
 * ncclInvalidArgument; a communicator that is not ready: what ncclCommGetAsyncError reports, or as after finalize or
 * revoke. */
ncclResult_t nitinolCommSetTimeout(ncclComm_t comm, double seconds);

/* Writes the rank's last operations, and how far they have come, to a file: JSON that Chrome's and Perfetto's trace
 * viewers open too, or text if the name ends in .txt. nitinol-trace merges the JSON of all ranks and says who waits
 * for whom. From any thread, also after a failure. NITINOL_DUMP_FILE, NITINOL_DUMP_SIGNAL and nitinol-ras write the
 * same. ncclInProgress while the communicator is being made; ncclSystemError if the file cannot be written. */
ncclResult_t nitinolCommDump(ncclComm_t comm, const char* path);

#ifdef __cplusplus
}
#endif

#endif
