// What a launch takes of the host: by the runtime's call and by the driver's, with how many bytes of parameters, and
// with an event recorded behind it. Kernels of one CTA that do nothing but wait for the one before them, which may
// overlap. Times are the least of several batches, in microseconds a launch.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <stdexcept>

#include "cuda_status.h"
#include "runtime_launch.h"

namespace {

constexpr int kThreads = 512;
constexpr int kLaunches = 500;
constexpr int kBatches = 15;

template <int kBytes>
struct Parameters {
  char bytes[kBytes] = {};
};

template <int kBytes>
__global__ void __launch_bounds__(kThreads) await_earlier(const __grid_constant__ Parameters<kBytes> parameters) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  asm volatile("" ::"r"(static_cast<int>(parameters.bytes[0])));
}

using DriversLaunch = decltype(&::cuLaunchKernelEx);

DriversLaunch drivers_launch() {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion("cuLaunchKernelEx", &address, 12000, cudaEnableDefault, &found),
        "cudaGetDriverEntryPointByVersion");
  return reinterpret_cast<DriversLaunch>(address);
}

template <int kBytes>
class Launches {
 public:
  explicit Launches(cudaStream_t stream) : stream_(stream) {
    check(cudaGetKernel(&kernel_, reinterpret_cast<const void*>(&await_earlier<kBytes>)), "cudaGetKernel");
  }

  void by_runtime() {
    launch_by_runtime(reinterpret_cast<const void*>(&await_earlier<kBytes>), kThreads, true, arguments_, stream_);
  }
  void by_driver() {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = kThreads;
    config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream_;
    config.attrs = &attribute;
    config.numAttrs = 1;
    const CUresult result = launch_(&config, reinterpret_cast<CUfunction>(kernel_), arguments_, nullptr);
    if (result != CUDA_SUCCESS) throw std::runtime_error("cuLaunchKernelEx failed");
  }

 private:
  cudaStream_t stream_;
  cudaKernel_t kernel_ = nullptr;
  const DriversLaunch launch_ = drivers_launch();
  Parameters<kBytes> parameters_;
  void* arguments_[1] = {&parameters_};
};

double least(cudaStream_t stream, const std::function<void()>& one) {
  double least = std::numeric_limits<double>::max();
  for (int batch = 0; batch < kBatches; ++batch) {
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kLaunches; ++i) one();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    least = std::min(least, time.count() / kLaunches);
  }
  return least;
}

template <int kBytes>
void show(cudaStream_t stream, cudaEvent_t event) {
  Launches<kBytes> launches(stream);
  const double runtime = least(stream, [&] { launches.by_runtime(); });
  const double driver = least(stream, [&] { launches.by_driver(); });
  const double recorded = least(stream, [&] {
    launches.by_driver();
    check(cudaEventRecord(event, stream), "cudaEventRecord");
  });
  std::printf("%4d bytes of parameters: runtime %.2f, driver %.2f, driver and an event %.2f\n", kBytes, runtime, driver,
              recorded);
}

}  // namespace

int main() {
  return status_of("launch_cost", [] {
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    show<64>(stream, event);
    show<1280>(stream, event);
    show<3968>(stream, event);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  });
}
