#include "executor/cuda/loaded_kernels.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "base/fork_safe.h"
#include "device/check.h"
#include "device/guards.h"
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

struct LimitsOfSharedMemory {
  std::mutex mutex;  ///< held while one is looked at and set
};

/// Another communicator may have asked for more, or do so at this moment.
cudaFuncAttributes allow_shared_memory(const void* kernel, size_t bytes) {
  static auto& all = make_free_across_forks<LimitsOfSharedMemory>();
  const std::lock_guard lock(all.mutex);
  const cudaFuncAttributes attributes = attributes_of(kernel);
  const int most = static_cast<int>(bytes);
  if (most > attributes.maxDynamicSharedSizeBytes) {
    set_attribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  }
  return attributes;
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
  const cudaFuncAttributes attributes = allow_shared_memory(kernel, most);
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
void LoadedKernels::load_set(const KernelSet& set) {
  set.for_each([this](Collective what, Way way, const void* kernel) {
    if (way != Way::kJoined) return load(kernel);
    if (joined_) load(kernel, joined_shared_bytes(what, ranks_));
  });
}

void LoadedKernels::load_moves() {
  load_set(move_kernels());
  for (const MessageKernels& all : {message_kernels(), message_kernels_between_vectors()}) {
    for (const auto& kernels : all) {
      for (const void* kernel : kernels) load(kernel);
    }
  }
}

void LoadedKernels::load_reduction(DataType type, Combiner with) {
  if (const KernelSet* set = find_reduce_kernels(type, with)) load_set(*set);
}

void LoadedKernels::load_usual() {
  load_moves();
  for (const DataType type : kOftenAdded) load_reduction(type, Combiner::kSum);
  for (const DataType type : kOftenCompared) load_reduction(type, Combiner::kOther);
}

void LoadedKernels::load_all() {
  load_moves();
  for (int type = 0; type < kDataTypes; ++type) {
    for (const Combiner with : {Combiner::kSum, Combiner::kOther}) load_reduction(static_cast<DataType>(type), with);
  }
}

}  // namespace nitinol::cuda
