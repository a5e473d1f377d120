#include "executor/cuda/loaded_kernels.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>

#include "base/error.h"
#include "base/thread_name.h"
#include "device/check.h"
#include "device/guards.h"
#include "device/per_device.h"
#include "device/run_together_on.h"
#include "executor/cuda/kernel_set.h"
#include "executor/cuda/kernel_shapes.h"
#include "executor/cuda/probe.h"

namespace nitinol::cuda {

namespace {

// Bytes stand for truth values.
constexpr std::array kOften = {DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBfloat16,
                               DataType::kUint8,   DataType::kInt32,   DataType::kInt64};

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
struct Unpacking {
  std::atomic_flag has_begun;
};

/// Has CUDA unpack the files of all kernels at the same time. It does so, for each GPU, when the first kernel of a file
/// is used, and one file after the other takes it longer than loading all kernels: the first communicator of 2 H200 was
/// made in 78 to 104 ms so, in 143 to 199 without. What fails here does so again where the kernels are loaded.
void unpack_once(int device, const std::vector<const void*>& kernels) {
  if (per_device<Unpacking>(device).has_begun.test_and_set()) return;
  const auto unpack = [&](size_t index) {
    try {
      if (index != 0) set_thread_name("NitinolLoad");
      const RelaxedCaptureGuard relaxed;
      static_cast<void>(attributes_of(kernels[index]));
    } catch (const std::exception&) {
      static_cast<void>(cudaGetLastError());
    }
  };
  try {
    run_together_on(
        kernels.size(), [device](size_t) { return device; }, unpack);
  } catch (const Error&) {  // there are too few threads: one file after the other, then
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

/// Calls visit(what, way, kernel) for all but those for a rank by itself.
template <class Visit>
void LoadedKernels::for_each_wanted(const KernelSet& set, Scope scope, Visit&& visit) const {
  set.for_each([&](Collective what, Way way, const void* kernel) {
    const bool is_wanted = ways_.has(what, way) || (scope == Scope::kAllWays && way != Way::kJoined);
    if (kernel != nullptr && is_wanted) visit(what, way, kernel);
  });
}

/// One kernel of each set.
std::vector<const void*> LoadedKernels::first_of_each(const Sets& sets, Scope scope) const {
  std::vector<const void*> first;
  for (const KernelSet* const set : sets) {
    const void* found = nullptr;
    for_each_wanted(*set, scope, [&](Collective, Way, const void* kernel) {
      if (found == nullptr) found = kernel;
    });
    if (found != nullptr) first.push_back(found);
  }
  return first;
}

/// And kernels of messages, which are in the file of those that move data.
void LoadedKernels::load(const Sets& sets, Scope scope) {
  unpack_once(device_, first_of_each(sets, scope));
  for (const KernelSet* const set : sets) {
    for_each_wanted(*set, scope, [&](Collective what, Way way, const void* kernel) {
      load(kernel, way == Way::kJoined ? joined_shared_bytes(what, ranks_) : 0);
    });
  }
  for (const MessageKernels& all :
       {message_kernels(messages_in_rows_), message_kernels_between_vectors(messages_in_rows_)}) {
    for (const auto& kernels : all) {
      for (const void* kernel : kernels) load(kernel);
    }
  }
}

/// Nothing, if the build leaves it out; types may share one.
void LoadedKernels::add_reduction(Sets& sets, DataType type, Combiner with) {
  const KernelSet* const set = find_reduce_kernels(type, with);
  if (set != nullptr && std::find(sets.begin(), sets.end(), set) == sets.end()) sets.push_back(set);
}

void LoadedKernels::load_usual() {
  Sets sets = {&move_kernels()};
  for (const DataType type : kOften) {
    for (const Combiner with : {Combiner::kSum, Combiner::kOther}) add_reduction(sets, type, with);
  }
  load(sets, Scope::kWaysInUse);
}

void LoadedKernels::load_all() {
  Sets sets = {&move_kernels()};
  for (int type = 0; type < kDataTypes; ++type) {
    for (const Combiner with : {Combiner::kSum, Combiner::kOther}) {
      add_reduction(sets, static_cast<DataType>(type), with);
    }
  }
  load(sets, Scope::kAllWays);
}

}  // namespace nitinol::cuda
