// A libnccl.so.2 opened at run time: its functions in a table, so that two libraries can be measured side by side.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace nitinol::perf {

/// What ends the program with a message and exit code 2.
class PerfError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The entry points that the tool calls. The last group is optional: null when the library is too old to have them.
struct NcclFunctions {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommInitRank) comm_init_rank = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclRedOpCreatePreMulSum) red_op_create_pre_mul_sum = nullptr;
  decltype(&ncclRedOpDestroy) red_op_destroy = nullptr;

  decltype(&ncclAlltoAll) all_to_all = nullptr;
  decltype(&ncclGather) gather = nullptr;
  decltype(&ncclScatter) scatter = nullptr;
  decltype(&ncclMemAlloc) mem_alloc = nullptr;
  decltype(&ncclMemFree) mem_free = nullptr;
  decltype(&ncclCommRegister) comm_register = nullptr;
  decltype(&ncclCommDeregister) comm_deregister = nullptr;
  decltype(&ncclCommWindowRegister) window_register = nullptr;
  decltype(&ncclCommWindowDeregister) window_deregister = nullptr;
};

/// An opened library. It stays loaded until the process ends: unloading a library that owns threads is not safe.
///
/// Two libraries live in one link namespace, each opened RTLD_LOCAL: their symbols are reached through their own handle
/// only, while both share the one CUDA runtime or driver, and with it devices, streams and buffers. A namespace of its
/// own (dlmopen) would bring a second CUDA driver, for which our pointers and streams mean nothing.
class Library {
 public:
  explicit Library(const std::string& path);

  const NcclFunctions& nccl() const { return functions_; }
  const std::string& path() const { return path_; }
  int version() const { return version_; }
  std::string version_text() const;
  bool is_nitinol() const { return is_nitinol_; }
  bool same_object(const Library& other) const { return handle_ == other.handle_; }

  /// Throws PerfError with the library's own explanation unless the call succeeded (or is in progress).
  void check(ncclResult_t result, const char* what) const;

  /// Waits until a non-blocking communicator is out of "in progress"; throws when it has failed.
  void settle(ncclComm_t comm, const char* what) const;

 private:
  void* handle_ = nullptr;
  std::string path_;
  NcclFunctions functions_;
  int version_ = 0;
  bool is_nitinol_ = false;
};

/// The library to measure when none is named: ../lib/libnccl.so.2 beside the program, else the loader's.
std::string default_library_path();

/// Throws PerfError unless a CUDA call succeeded.
void check_cuda(cudaError_t result, const char* what);

}  // namespace nitinol::perf
