#include "executor/cuda/launch.h"

#include <cuda.h>

#include <array>

#include "device/check.h"
#include "device/driver_function.h"

namespace nitinol::cuda {

namespace {

using DriversLaunch = decltype(&::cuLaunchKernelEx);

DriversLaunch drivers_launch() {
  static const auto found = driver_function<DriversLaunch>("cuLaunchKernelEx");
  if (found == nullptr) fail(ncclUnhandledCudaError, "the CUDA driver has no cuLaunchKernelEx: it is too old");
  return found;
}

/// Makes the context current that the runtime uses on this thread, which has perhaps called nothing but it so far.
void bind_context() {
  int device = 0;
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  cuda_check(cudaSetDevice(device), "cudaSetDevice");
}

}  // namespace

void launch(cudaKernel_t kernel, const LaunchShape& shape, void* parameters, cudaStream_t stream) {
  std::array<CUlaunchAttribute, 2> attributes{};
  CUlaunchConfig config{};
  config.gridDimX = static_cast<unsigned>(shape.ctas);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = static_cast<unsigned>(shape.threads);
  config.blockDimY = static_cast<unsigned>(shape.rows);
  config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(shape.shared_bytes);
  config.hStream = stream;
  config.attrs = attributes.data();
  const auto add = [&](CUlaunchAttributeID id) -> CUlaunchAttributeValue& {
    CUlaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = id;
    return attribute.value;
  };
  if (shape.begun != nullptr) {
    add(CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT).launchCompletionEvent.event = shape.begun;
  } else if (shape.may_begin_early) {
    add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).programmaticStreamSerializationAllowed = 1;
  }
  if (shape.ctas_of_cluster > 1) {
    add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = {static_cast<unsigned>(shape.ctas_of_cluster), 1, 1};
  }
  const DriversLaunch launch = drivers_launch();
  const auto function = reinterpret_cast<CUfunction>(kernel);
  void* arguments[] = {parameters};
  CUresult result = launch(&config, function, arguments, nullptr);
  if (result == CUDA_ERROR_INVALID_CONTEXT) {
    bind_context();
    result = launch(&config, function, arguments, nullptr);
  }
  // The runtime's errors have the driver's numbers.
  cuda_check(static_cast<cudaError_t>(result), "launch of a communication kernel");
}

}  // namespace nitinol::cuda
