// Nitinol's own calls (nitinol.h).
#include <chrono>
#include <cmath>

#include "api/entry.h"
#include "comm/communicator.h"
#include "comm/handle.h"
#include "nitinol.h"

using namespace nitinol;

extern "C" ncclResult_t nitinolCommDump(ncclComm_t comm, const char* path) {
  return at_once(comm, [&] {
    Communicator& communicator = communicator_of(comm, "nitinolCommDump");
    communicator.require_own("nitinolCommDump");
    if (path == nullptr) fail(ncclInvalidArgument, "nitinolCommDump : path argument is NULL");
    if (communicator.phase() == Phase::kInitialising) {
      const ncclResult_t state = communicator.state();
      fail(state == ncclSuccess ? ncclInProgress : state, "nitinolCommDump: the communicator {}",
           state == ncclInProgress || state == ncclSuccess ? "is still being initialised" : "failed to be initialised");
    }
    communicator.dump_to(path);
    return ncclSuccess;
  });
}

extern "C" ncclResult_t nitinolCommSetTimeout(ncclComm_t comm, double seconds) {
  return at_once(comm, [&] {
    constexpr const char* kName = "nitinolCommSetTimeout";
    constexpr double kMost = 1e9;
    Communicator& communicator = communicator_of(comm, kName);
    communicator.require_ready(kName, Call::kRegister);
    if (!(seconds >= 0) || seconds > kMost) fail(ncclInvalidArgument, "{} : {} seconds", kName, seconds);
    communicator.set_timeout(std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1000))));
    return ncclSuccess;
  });
}
