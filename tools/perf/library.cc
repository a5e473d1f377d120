// Opening a libnccl.so.2 and filling its function table.
#include "library.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <thread>

namespace nitinol::perf {
namespace {

template <typename Function>
void resolve(Function& slot, void* handle, const char* name) {
  slot = reinterpret_cast<Function>(dlsym(handle, name));
}

std::string file_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

std::string file_of_handle(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : "";
}

NcclFunctions load_functions(void* handle) {
  NcclFunctions f;
  resolve(f.get_version, handle, "ncclGetVersion");
  resolve(f.get_unique_id, handle, "ncclGetUniqueId");
  resolve(f.comm_init_rank_config, handle, "ncclCommInitRankConfig");
  resolve(f.comm_init_rank, handle, "ncclCommInitRank");
  resolve(f.comm_destroy, handle, "ncclCommDestroy");
  resolve(f.comm_get_async_error, handle, "ncclCommGetAsyncError");
  resolve(f.get_error_string, handle, "ncclGetErrorString");
  resolve(f.get_last_error, handle, "ncclGetLastError");
  resolve(f.group_start, handle, "ncclGroupStart");
  resolve(f.group_end, handle, "ncclGroupEnd");
  resolve(f.all_reduce, handle, "ncclAllReduce");
  resolve(f.all_gather, handle, "ncclAllGather");
  resolve(f.reduce_scatter, handle, "ncclReduceScatter");
  resolve(f.broadcast, handle, "ncclBroadcast");
  resolve(f.reduce, handle, "ncclReduce");
  resolve(f.send, handle, "ncclSend");
  resolve(f.recv, handle, "ncclRecv");
  resolve(f.red_op_create_pre_mul_sum, handle, "ncclRedOpCreatePreMulSum");
  resolve(f.red_op_destroy, handle, "ncclRedOpDestroy");
  resolve(f.all_to_all, handle, "ncclAlltoAll");
  resolve(f.gather, handle, "ncclGather");
  resolve(f.scatter, handle, "ncclScatter");
  resolve(f.mem_alloc, handle, "ncclMemAlloc");
  resolve(f.mem_free, handle, "ncclMemFree");
  resolve(f.comm_register, handle, "ncclCommRegister");
  resolve(f.comm_deregister, handle, "ncclCommDeregister");
  resolve(f.window_register, handle, "ncclCommWindowRegister");
  resolve(f.window_deregister, handle, "ncclCommWindowDeregister");
  return f;
}

bool complete(const NcclFunctions& f) {
  return f.get_version && f.get_unique_id && f.comm_init_rank_config && f.comm_init_rank && f.comm_destroy &&
         f.comm_get_async_error && f.get_error_string && f.get_last_error && f.group_start && f.group_end &&
         f.all_reduce && f.all_gather && f.reduce_scatter && f.broadcast && f.reduce && f.send && f.recv &&
         f.red_op_create_pre_mul_sum && f.red_op_destroy;
}

}  // namespace

Library::Library(const std::string& path) {
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) throw PerfError("cannot open the library '" + path + "': " + dlerror());
  functions_ = load_functions(handle_);
  if (!complete(functions_)) {
    throw PerfError("'" + path + "' lacks functions of NCCL 2.18 or later; is it a libnccl.so.2?");
  }
  path_ = file_of_handle(handle_);
  const std::string found = file_of(reinterpret_cast<const void*>(functions_.all_reduce));
  if (found != path_) {
    throw PerfError("ncclAllReduce of '" + path + "' resolves to '" + found + "'; unset LD_PRELOAD");
  }
  is_nitinol_ = dlsym(handle_, "nitinolCommDump") != nullptr;
  check(functions_.get_version(&version_), "ncclGetVersion");
}

std::string Library::version_text() const {
  const int major = version_ >= 10000 ? version_ / 10000 : version_ / 1000;
  const int minor = version_ >= 10000 ? version_ / 100 % 100 : version_ / 100 % 10;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(version_ % 100) +
         (is_nitinol_ ? " (Nitinol)" : "");
}

void Library::check(ncclResult_t result, const char* what) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  std::string message = std::string(what) + ": " + functions_.get_error_string(result);
  const char* detail = functions_.get_last_error(nullptr);
  if (detail != nullptr && *detail != '\0') message += std::string("; ") + detail;
  throw PerfError(message + " [" + path_ + "]");
}

void Library::settle(ncclComm_t comm, const char* what) const {
  ncclResult_t state = ncclInProgress;
  while (true) {
    check(functions_.comm_get_async_error(comm, &state), what);
    if (state != ncclInProgress) break;
    std::this_thread::yield();
  }
  check(state, what);
}

std::string default_library_path() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path beside = program.parent_path().parent_path() / "lib" / "libnccl.so.2";
    if (std::filesystem::exists(beside, error)) return beside.string();
  }
  return "libnccl.so.2";
}

void check_cuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw PerfError(std::string(what) + ": " + cudaGetErrorString(result));
}

}  // namespace nitinol::perf
