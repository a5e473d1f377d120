// Green contexts of a GPU: each has some of its multiprocessors for itself.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "device/driver_function.h"

namespace nitinol::gpu_testing {

class GreenContexts {
 public:
  /// Whether that many can be made.
  static bool there_are(int device, unsigned contexts, unsigned multiprocessors) {
    try {
      const GreenContexts some(device, contexts, multiprocessors);
    } catch (const std::runtime_error&) {
      return false;
    }
    return true;
  }

  /// So many contexts of at least so many multiprocessors each. Throws std::runtime_error where there are none.
  GreenContexts(int device, unsigned contexts, unsigned multiprocessors) {
    CUdevResource all{};
    check(driver().resource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
    std::vector<CUdevResource> parts(contexts);
    unsigned there = contexts;
    check(driver().split(parts.data(), &there, &all, nullptr, 0, multiprocessors), "cuDevSmResourceSplitByCount");
    if (there < contexts) throw std::runtime_error("the GPU has too few multiprocessors");
    for (CUdevResource& part : parts) {
      CUdevResourceDesc description = nullptr;
      check(driver().describe(&description, &part, 1), "cuDevResourceGenerateDesc");
      CUgreenCtx context = nullptr;
      check(driver().create(&context, description, device, CU_GREEN_CTX_DEFAULT_STREAM), "cuGreenCtxCreate");
      contexts_.push_back(context);
    }
  }
  ~GreenContexts() {
    for (const CUgreenCtx context : contexts_) static_cast<void>(driver().destroy(context));
  }
  GreenContexts(const GreenContexts&) = delete;
  GreenContexts& operator=(const GreenContexts&) = delete;

  /// As what the thread makes from now on is to be in it, like its streams.
  void make_current(size_t context) const {
    CUcontext current = nullptr;
    check(driver().convert(&current, contexts_.at(context)), "cuCtxFromGreenCtx");
    check(driver().set_current(current), "cuCtxSetCurrent");
  }

  /// A non-blocking stream of a context; to be destroyed before it.
  cudaStream_t make_stream(size_t context) const {
    CUstream stream = nullptr;
    check(driver().make_stream(&stream, contexts_.at(context), CU_STREAM_NON_BLOCKING, 0), "cuGreenCtxStreamCreate");
    return stream;
  }

 private:
  struct Driver {
    static constexpr unsigned kSince = 12050;
    decltype(&::cuDeviceGetDevResource) resource =
        driver_function<decltype(resource)>("cuDeviceGetDevResource", kSince);
    decltype(&::cuDevSmResourceSplitByCount) split =
        driver_function<decltype(split)>("cuDevSmResourceSplitByCount", kSince);
    decltype(&::cuDevResourceGenerateDesc) describe =
        driver_function<decltype(describe)>("cuDevResourceGenerateDesc", kSince);
    decltype(&::cuGreenCtxCreate) create = driver_function<decltype(create)>("cuGreenCtxCreate", kSince);
    decltype(&::cuGreenCtxDestroy) destroy = driver_function<decltype(destroy)>("cuGreenCtxDestroy", kSince);
    decltype(&::cuCtxFromGreenCtx) convert = driver_function<decltype(convert)>("cuCtxFromGreenCtx", kSince);
    decltype(&::cuCtxSetCurrent) set_current = driver_function<decltype(set_current)>("cuCtxSetCurrent", kSince);
    decltype(&::cuGreenCtxStreamCreate) make_stream =
        driver_function<decltype(make_stream)>("cuGreenCtxStreamCreate", kSince);
  };
  static const Driver& driver() {
    static const Driver found;
    if (found.make_stream == nullptr) throw std::runtime_error("the driver has no green contexts");
    return found;
  }
  static void check(CUresult result, const char* call) {
    if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(call) + ": error " + std::to_string(result));
  }

  std::vector<CUgreenCtx> contexts_;
};

}  // namespace nitinol::gpu_testing
