#include "executor/cuda/loaded_kernels.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>

#include "base/error.h"
#include "base/run_together.h"
#include "device/check.h"
#include "device/guards.h"
#include "device/per_device.h"
#include "executor/cuda/kernel_set.h"
#include "executor/cuda/kernel_shapes.h"
#include "executor/cuda/probe.h"

namespace nitinol::cuda {

namespace {

// Bytes stand for truth values.
constexpr std::array kOftenAdded = {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16,
                                    DataType::kUint8,   DataType::kInt32,   DataType::kInt64};
constexpr std::array kOftenCompared = {DataType::kFloat32, DataType::kBfloat16, DataType::kUint8, DataType::kInt32,
                                       DataType::kInt64};

void set_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  cuda_check(cudaFuncSetAttribute(kernel, attribute, value), "cudaFuncSetAttribute of a communication kernel");
}

/// A multiprocessor that has CTAs takes others only where its division of memory into cache and shared memory suits
/// them: with little shared memory none but those that want as little, however much room there is. Large operations
/// of some ranks, which have CTAs everywhere, would so keep the small kernels of one that they wait for from the GPU.
/// Otherwise it is better to have the cache: large reduce-scatters take three fifths of the time.
void make_room_beside(const void* kernel) {
  set_attribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
}

cudaFuncAttributes attributes_of(const void* kernel) {
  cudaFuncAttributes attributes{};
  cuda_check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes of a communication kernel");
  return attributes;
}

/// Of a device.
struct LimitsOfSharedMemory {
  std::mutex mutex;  ///< held while one is looked at and set
};

/// Another communicator may have asked for more, or do so at this moment.
cudaFuncAttributes allow_shared_memory(int device, const void* kernel, size_t bytes) {
  const std::lock_guard lock(per_device<LimitsOfSharedMemory>(device).mutex);
  const cudaFuncAttributes attributes = attributes_of(kernel);
  const int most = static_cast<int>(bytes);
  if (most > attributes.maxDynamicSharedSizeBytes) {
    set_attribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  }
  return attributes;
}

/// Of a device.
struct Unpacked {
  std::atomic_flag is_done;
};

const void* any_kernel_of(const KernelSet& set) {
  const void* found = nullptr;
  set.for_each([&](Collective, Way, const void* kernel) { found = kernel != nullptr ? kernel : found; });
  return found;
}

/// Has CUDA unpack the code of all sets at the same time. It does so, for each GPU, when the first kernel of a file is
/// used, and one file after the other takes it longer than loading all kernels: communicators of 2 H200 were made in
/// 107 ms so, in 190 without. What fails here does so again where the kernels are loaded.
void unpack_once(int device, const std::vector<const KernelSet*>& sets) {
  if (per_device<Unpacked>(device).is_done.test_and_set()) return;
  const auto unpack = [&](size_t index) {
    try {
      const void* const kernel = sets[index] != nullptr ? any_kernel_of(*sets[index]) : nullptr;
      settle_on(device);
      const RelaxedCaptureGuard relaxed;
      if (kernel != nullptr) static_cast<void>(attributes_of(kernel));
    } catch (const std::exception&) {
      static_cast<void>(cudaGetLastError());
    }
  };
  try {
    run_together(sets.size(), unpack);
  } catch (const Error&) {  // there are too few threads
  }
}

}  // namespace

int kernels_compiled_for() {
  const RelaxedCaptureGuard relaxed;
  return attributes_of(probe_kernel()).ptxVersion;
}

void LoadedKernels::load(const void* kernel) { load(kernel, 0); }

void LoadedKernels::load(const void* kernel, size_t shared) {
  if (kernel == nullptr || has(kernel)) return;
  const size_t most =
      std::max({shared_bytes(ranks_, kMaxWorkers + 1), kMostRows * shared_bytes(ranks_, kFewWorkers + 1), shared});
  const cudaFuncAttributes attributes = allow_shared_memory(device_, kernel, most);
  least_compiled_for_ = std::min(least_compiled_for_, attributes.ptxVersion);
  if (room_beside_) make_room_beside(kernel);
  cudaKernel_t handle = nullptr;
  cuda_check(cudaGetKernel(&handle, kernel), "cudaGetKernel of a communication kernel");
  kernels_.emplace(kernel, handle);
}

cudaKernel_t LoadedKernels::handle_of(const void* kernel) const {
  const auto found = kernels_.find(kernel);
  if (found == kernels_.end())
    fail(ncclInternalError, "a communication kernel was to be launched before it was loaded");
  return found->second;
}

/// All but those for a rank by itself.
void LoadedKernels::load_set(const KernelSet& set, Scope scope) {
  set.for_each([&](Collective what, Way way, const void* kernel) {
    if (way == Way::kJoined) {
      if (ways_.has(what, way)) load(kernel, joined_shared_bytes(what, ranks_));
    } else if (scope == Scope::kAllWays || ways_.has(what, way)) {
      load(kernel);
    }
  });
}

/// And kernels of messages. Of a reduction that the build leaves out there is no set.
void LoadedKernels::load(const Sets& sets, Scope scope) {
  unpack_once(device_, sets);
  for (const KernelSet* const set : sets) {
    if (set != nullptr) load_set(*set, scope);
  }
  for (const MessageKernels& all : {message_kernels(), message_kernels_between_vectors()}) {
    for (const auto& kernels : all) {
      for (const void* kernel : kernels) load(kernel);
    }
  }
}

void LoadedKernels::load_usual() {
  Sets sets = {&move_kernels()};
  for (const DataType type : kOftenAdded) sets.push_back(find_reduce_kernels(type, Combiner::kSum));
  for (const DataType type : kOftenCompared) sets.push_back(find_reduce_kernels(type, Combiner::kOther));
  load(sets, Scope::kWaysInUse);
}

void LoadedKernels::load_all() {
  Sets sets = {&move_kernels()};
  for (int type = 0; type < kDataTypes; ++type) {
    for (const Combiner with : {Combiner::kSum, Combiner::kOther}) {
      sets.push_back(find_reduce_kernels(static_cast<DataType>(type), with));
    }
  }
  load(sets, Scope::kAllWays);
}

}  // namespace nitinol::cuda
