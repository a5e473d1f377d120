// Runs ranks of one communicator as threads of one or several processes, as a test wants them. The test's own process
// never touches the library, so that it can fork.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "nccl.h"
#include "scarcity.h"

namespace nitinol::testing {

/// Seconds: a limit of time that whoever means to come keeps, and that does not keep a test for long.
constexpr int kShortTime = kSanitized ? 8 : 3;
/// Seconds: one within which all come. (Whoever finalizes without a limit goes alone where others are late by a
/// second.)
constexpr int kLongTime = 100;
/// Less than ctest has (NitinolRoom.cmake), so that it can be told what all threads do.
constexpr std::chrono::seconds kMostTimeOfProcesses{kSanitized ? 550 : 110};
/// Within which an abort ends. What is promised is two seconds; a busy machine gets some more.
constexpr std::chrono::seconds kAbortTime{kSanitized ? 10 : 4};

/// One rank inside a test's body. Its device is current.
struct Rank {
  int rank = 0;
  int ranks = 1;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
};

/// Throws std::runtime_error with what failed and the library's last error.
void expect(ncclResult_t result, const char* call);
void expect(cudaError_t result, const char* call);
#define EXPECT_CALL(call) ::nitinol::testing::expect(call, #call)
/// The same unless something holds.
void expect_that(bool holds, const std::string& what);
/// The same unless the calling thread's last call was refused with that code and a sentence that has the words.
void expect_refusal(ncclResult_t result, ncclResult_t code, const std::string& words);

/// Throws unless this is that rank of so many.
void expect_place(ncclComm_t comm, int rank, int ranks);

/// What ncclCommGetAsyncError reports.
ncclResult_t state_of(ncclComm_t comm);

/// What a call has come to in the end, which on a non-blocking communicator may be later than it returns.
ncclResult_t settled(ncclResult_t called, ncclComm_t comm);

/// While it lives ranks that never come are given up soon, though not before all have had the time to join: on GPUs
/// each process makes a context first, perhaps beside those of many others.
class ShortInitTimeout {
 public:
#if defined(NITINOL_CUDA)
  ShortInitTimeout() { setenv("NITINOL_INIT_TIMEOUT", "12", 1); }
#else
  ShortInitTimeout() { setenv("NITINOL_INIT_TIMEOUT", std::to_string(kShortTime).c_str(), 1); }
#endif
  ~ShortInitTimeout() { unsetenv("NITINOL_INIT_TIMEOUT"); }
  ShortInitTimeout(const ShortInitTimeout&) = delete;
  ShortInitTimeout& operator=(const ShortInitTimeout&) = delete;
};

/// Makes the rank's device current: they are dealt in turn.
void use_device_of(int rank);

/// Communicators of all `ranks` ranks in one thread, on devices that are dealt in turn.
void make_communicators(ncclComm_t* comms, int ranks);
/// The same, but they do not block.
std::vector<ncclComm_t> make_non_blocking(int ranks);

/// `ranks_in_process[i]` ranks run as threads of process i. Each makes its communicator, runs `body`, and destroys it.
/// Returns what went wrong, "" if nothing did. Processes that do not end within kMostTimeOfProcesses are killed.
std::string run_ranks(const std::vector<int>& ranks_in_process, const std::function<void(Rank&)>& body);

/// The ranks' processes without a communicator: `body` gets the process's number and the id that process 0 made.
std::string run_processes(int processes, const std::function<void(int process, const ncclUniqueId& id)>& body);

/// Runs of these kinds at the same time, in processes of their own; together what they return.
std::string run_at_once(const std::vector<std::function<std::string()>>& runs);

}  // namespace nitinol::testing
