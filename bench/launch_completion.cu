// What cudaLaunchAttributeLaunchCompletionEvent does and costs: whether what waits for such an event begins only once
// all CTAs of the kernel have begun, and before it is done; and what a launch costs with it, without it, and if each
// waits for the one before in another stream.
#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <thread>

#include "cuda_status.h"

namespace {

constexpr int kWholeMultiprocessor = 200 * 1024;  // bytes of shared memory: one CTA on each
constexpr int kLaunches = 2000;

__global__ void wait_for(const volatile int* go) {
  while (*go == 0) {
  }
}
__global__ void do_nothing() {}

enum class Attributes { kNone, kOverlap, kCompletion, kBoth };

void launch(const void* kernel, int ctas, int shared_bytes, cudaStream_t stream, void** arguments, Attributes which,
            cudaEvent_t begun) {
  std::array<cudaLaunchAttribute, 2> attributes{};
  unsigned count = 0;
  if (which == Attributes::kOverlap || which == Attributes::kBoth) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (which == Attributes::kCompletion || which == Attributes::kBoth) {
    attributes[count].id = cudaLaunchAttributeLaunchCompletionEvent;
    attributes[count].val.launchCompletionEvent.event = begun;
    attributes[count++].val.launchCompletionEvent.flags = 0;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(32);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = count;
  check(cudaLaunchKernelExC(&config, kernel, arguments), "cudaLaunchKernelExC");
}

struct Bench {
  std::array<cudaStream_t, 3> streams{};
  std::array<cudaEvent_t, 2> begun{};
  cudaEvent_t join = nullptr;
  volatile int* go = nullptr;  ///< two of them
  int multiprocessors = 0;

  Bench() {
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
    check(cudaFuncSetAttribute(wait_for, cudaFuncAttributeMaxDynamicSharedMemorySize, kWholeMultiprocessor),
          "cudaFuncSetAttribute");
    for (cudaStream_t& each : streams) {
      check(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    for (cudaEvent_t* each : {&begun[0], &begun[1], &join}) {
      check(cudaEventCreateWithFlags(each, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, 2 * sizeof(int), cudaHostAllocMapped), "cudaHostAlloc");
    go = static_cast<volatile int*>(memory);
  }

  void launch_waiting(int index, int ctas, cudaStream_t stream, Attributes which) {
    const volatile int* flag = go + index;
    void* arguments[] = {&flag};
    launch(reinterpret_cast<const void*>(&wait_for), ctas, kWholeMultiprocessor, stream, arguments, which, begun[0]);
  }
  void launch_nothing(cudaStream_t stream, Attributes which = Attributes::kNone, cudaEvent_t event = nullptr) {
    launch(reinterpret_cast<const void*>(&do_nothing), 8, 0, stream, nullptr, which, event);
  }
};

bool done_soon(cudaStream_t stream) {
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    if (cudaStreamQuery(stream) == cudaSuccess) return true;
  }
  return false;
}

/// The first kernel has room for all but `taken` of its CTAs, until the blocker ends.
void show_order(Bench& b, int taken, bool graph) {
  b.go[0] = 0;
  b.go[1] = 0;
  b.launch_waiting(0, taken, b.streams[0], Attributes::kNone);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const auto enqueue = [&] {
    b.launch_waiting(1, b.multiprocessors, b.streams[1], Attributes::kCompletion);
    check(cudaStreamWaitEvent(b.streams[2], b.begun[0], 0), "cudaStreamWaitEvent");
    b.launch_nothing(b.streams[2]);
  };
  if (graph) {
    check(cudaStreamBeginCapture(b.streams[1], cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    enqueue();
    check(cudaEventRecordWithFlags(b.begun[1], b.streams[2], cudaEventRecordExternal), "cudaEventRecordWithFlags");
    check(cudaEventRecord(b.join, b.streams[2]), "cudaEventRecord");
    check(cudaStreamWaitEvent(b.streams[1], b.join, 0), "cudaStreamWaitEvent");
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamEndCapture(b.streams[1], &captured), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable, captured, 0), "cudaGraphInstantiate");
    check(cudaGraphLaunch(executable, b.streams[1]), "cudaGraphLaunch");
    check(cudaStreamWaitEvent(b.streams[2], b.begun[1], 0), "cudaStreamWaitEvent");
  } else {
    enqueue();
  }
  const bool early = done_soon(b.streams[2]);
  b.go[0] = 1;
  const bool while_it_runs = done_soon(b.streams[2]);
  b.go[1] = 1;
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::printf("%s, %3d of %d multiprocessors taken: begins %s\n", graph ? "graph" : "eager", taken, b.multiprocessors,
              early           ? "before all CTAs have begun"
              : while_it_runs ? "when all CTAs have begun"
                              : "when the kernel is done");
}

template <class Launches>
void time(const char* what, Launches launches) {
  double host = 0;
  double all = 0;
  for (int round = 0; round < 2; ++round) {  // the second counts
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kLaunches; ++i) launches(i);
    const auto launched = std::chrono::steady_clock::now();
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const auto done = std::chrono::steady_clock::now();
    host = std::chrono::duration<double, std::micro>(launched - start).count() / kLaunches;
    all = std::chrono::duration<double, std::micro>(done - start).count() / kLaunches;
  }
  std::printf("%-60s host %6.2f us, all %6.2f us a launch\n", what, host, all);
}

void run() {
  Bench b;
  b.go[0] = 1;
  b.launch_waiting(0, 1, b.streams[0], Attributes::kNone);  // loads the kernels, which waits for those that run
  b.launch_nothing(b.streams[0]);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (const bool graph : {false, true}) {
    for (const int taken : {b.multiprocessors, b.multiprocessors / 2, 1}) show_order(b, taken, graph);
  }
  time("one stream", [&](int) { b.launch_nothing(b.streams[0]); });
  time("one stream, overlapping", [&](int) { b.launch_nothing(b.streams[0], Attributes::kOverlap); });
  time("one stream, completion event",
       [&](int) { b.launch_nothing(b.streams[0], Attributes::kCompletion, b.begun[0]); });
  time("one stream, overlapping, completion event",
       [&](int) { b.launch_nothing(b.streams[0], Attributes::kBoth, b.begun[0]); });
  time("one stream, event recorded after it", [&](int) {
    b.launch_nothing(b.streams[0]);
    check(cudaEventRecord(b.begun[0], b.streams[0]), "cudaEventRecord");
  });
  time("two streams in turns", [&](int i) { b.launch_nothing(b.streams[i % 2]); });
  time("two streams in turns, completion event",
       [&](int i) { b.launch_nothing(b.streams[i % 2], Attributes::kCompletion, b.begun[i % 2]); });
  time("two streams in turns, each waits until the last has begun", [&](int i) {
    check(cudaStreamWaitEvent(b.streams[i % 2], b.begun[(i + 1) % 2], 0), "cudaStreamWaitEvent");
    b.launch_nothing(b.streams[i % 2], Attributes::kCompletion, b.begun[i % 2]);
  });
}

}  // namespace

int main() { return status_of("launch_completion", run); }
