// What eager launches take of the GPU, one behind the other in a stream: with and without an event behind each, where
// kernels may overlap and where not. A thread for each GPU. The kernels, of one CTA, wait for the one before them and
// then as long as it says. Times are medians of several batches, in microseconds a launch: of the host until all are
// launched, and until all are done. Usage: launch_gaps [GPUS]
#include <cuda_runtime.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "cuda_status.h"
#include "runtime_launch.h"

namespace {

constexpr int kThreads = 512;
constexpr int kLaunches = 200;
constexpr int kBatches = 15;

struct Parameters {
  unsigned nanoseconds = 0;
  char rest[1276] = {};  // as many bytes as those of an operation
};

__global__ void __launch_bounds__(kThreads) last_for(const __grid_constant__ Parameters parameters) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  const long long begin = clock64();
  while ((clock64() - begin) * 10 < parameters.nanoseconds * 17LL) {  // at 1.7 GHz
  }
}

struct Shape {
  const char* name;
  bool overlaps;
  int events_each;  ///< an event behind every so many launches; 0: none
};

struct Times {
  double host = 0;
  double all = 0;
};

Times measure(const Shape& shape, unsigned nanoseconds, int gpu, std::barrier<>& together) {
  check(cudaSetDevice(gpu), "cudaSetDevice");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  std::vector<cudaEvent_t> events(128);
  for (cudaEvent_t& event : events) {
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  Parameters parameters{.nanoseconds = nanoseconds};
  void* arguments[] = {&parameters};
  std::vector<double> host;
  std::vector<double> all;
  for (int batch = 0; batch < kBatches; ++batch) {
    together.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kLaunches; ++i) {
      launch_by_runtime(reinterpret_cast<const void*>(&last_for), kThreads, shape.overlaps, arguments, stream);
      if (shape.events_each > 0 && i % shape.events_each == 0) {
        check(cudaEventRecord(events[static_cast<size_t>(i) % events.size()], stream), "cudaEventRecord");
      }
    }
    const auto launched = std::chrono::steady_clock::now();
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    const auto end = std::chrono::steady_clock::now();
    const auto us = [](auto time) { return std::chrono::duration<double, std::micro>(time).count() / kLaunches; };
    host.push_back(us(launched - begin));
    all.push_back(us(end - begin));
  }
  for (const cudaEvent_t event : events) check(cudaEventDestroy(event), "cudaEventDestroy");
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  const auto median = [](std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + kBatches / 2, values.end());
    return values[kBatches / 2];
  };
  return {median(host), median(all)};
}

}  // namespace

int main(int argc, char** argv) {
  const int gpus = argc > 1 ? std::atoi(argv[1]) : 1;
  const Shape shapes[] = {{"one after the other", false, 0},
                          {"and events", false, 1},
                          {"overlapping", true, 0},
                          {"overlapping, and events", true, 1},
                          {"overlapping, every 8th with an event", true, 8}};
  std::printf("%-40s %8s %8s %8s\n", "kernels", "last us", "host us", "all us");
  for (const unsigned nanoseconds : {0U, 1500U, 3000U}) {
    for (const Shape& shape : shapes) {
      std::barrier<> together(gpus);
      std::vector<Times> times(static_cast<size_t>(gpus));
      std::vector<std::thread> threads;
      for (int gpu = 0; gpu < gpus; ++gpu) {
        threads.emplace_back(
            [&, gpu] { times[static_cast<size_t>(gpu)] = measure(shape, nanoseconds, gpu, together); });
      }
      for (std::thread& thread : threads) thread.join();
      std::printf("%-40s %8.1f %8.2f %8.2f\n", shape.name, nanoseconds * 1e-3, times[0].host, times[0].all);
    }
  }
  return 0;
}
