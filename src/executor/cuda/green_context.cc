#include "executor/cuda/green_context.h"

#include <cuda.h>

#include "device/driver_function.h"

namespace nitinol::cuda {

bool is_of_green_context(cudaStream_t stream) {
  constexpr unsigned int kSince = 12040;
  using GetGreenContext = decltype(&::cuStreamGetGreenCtx);
  static const auto get = driver_function<GetGreenContext>("cuStreamGetGreenCtx", kSince);
  CUgreenCtx context = nullptr;
  return get != nullptr && get(stream, &context) == CUDA_SUCCESS && context != nullptr;
}

}  // namespace nitinol::cuda
