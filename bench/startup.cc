// How long a communicator of n ranks takes to start, and what memory it holds while idle: all ranks are threads of this
// process, each joins through one unique id (or several). Prints the median and the spread over the repeats; --json
// writes the same to a file.
//   startup [--most N] [--repeats R] [--ids I] [--json FILE]
#include <cuda_runtime.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "nccl.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kStackBytes = 256 * 1024;

struct Arguments {
  int most = 1024;
  int repeats = 5;
  int ids = 1;
  std::string json;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--most") arguments.most = std::atoi(argv[i + 1]);
    if (name == "--repeats") arguments.repeats = std::max(1, std::atoi(argv[i + 1]));
    if (name == "--ids") arguments.ids = std::max(1, std::atoi(argv[i + 1]));
    if (name == "--json") arguments.json = argv[i + 1];
  }
  return arguments;
}

/// A thread with a small stack, so that a thousand of them cost little.
class SmallThread {
 public:
  explicit SmallThread(std::function<void()> body) : body_(std::move(body)) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    if (pthread_create(&thread_, &attributes, run, this) != 0) throw std::runtime_error("cannot start a thread");
    pthread_attr_destroy(&attributes);
  }
  ~SmallThread() { pthread_join(thread_, nullptr); }
  SmallThread(const SmallThread&) = delete;
  SmallThread& operator=(const SmallThread&) = delete;

 private:
  static void* run(void* self) {
    static_cast<SmallThread*>(self)->body_();
    return nullptr;
  }
  std::function<void()> body_;
  pthread_t thread_{};
};

void check(ncclResult_t result) {
  if (result != ncclSuccess) throw std::runtime_error(ncclGetLastError(nullptr));
}

void check(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

/// What the process holds now, and the most it ever held since reset_peak(), in KiB. Memory that ranks share counts
/// once.
struct Memory {
  long now = 0;
  long peak = 0;
};

Memory memory_of_process() {
  Memory memory;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) memory.now = std::atol(line.c_str() + 6);
    if (line.starts_with("VmHWM:")) memory.peak = std::atol(line.c_str() + 6);
  }
  return memory;
}

void reset_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

/// Runs `body` for each rank on a thread of its own; returns milliseconds.
double on_all(int nranks, const std::function<void(int)>& body) {
  const auto start = Clock::now();
  std::vector<std::unique_ptr<SmallThread>> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.push_back(std::make_unique<SmallThread>([&body, rank] { body(rank); }));
  }
  threads.clear();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Sample {
  double init_ms = 0;
  double first_ms = 0;  ///< a first all-reduce of one element, and its end
  double peak_kib = 0;  ///< per rank, while the communicator is made
  double idle_kib = 0;  ///< per rank, of one that was made and not used
};

Sample measure(int nranks, int ids_count) {
  std::vector<ncclUniqueId> ids(static_cast<std::size_t>(std::min(ids_count, nranks)));
  for (ncclUniqueId& id : ids) check(ncclGetUniqueId(&id));
  int devices = 0;
  check(cudaGetDeviceCount(&devices));
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(nranks));
  std::vector<float*> data(comms.size());
  for (std::size_t rank = 0; rank < data.size(); ++rank) {
    check(cudaSetDevice(static_cast<int>(rank) % devices));
    check(cudaMalloc(reinterpret_cast<void**>(&data[rank]), sizeof(float)));
  }
  Sample sample;
  reset_peak();
  const Memory before = memory_of_process();
  sample.init_ms = on_all(nranks, [&](int rank) {
    check(cudaSetDevice(rank % devices));
    check(ncclCommInitRankScalable(&comms[static_cast<std::size_t>(rank)], nranks, rank, static_cast<int>(ids.size()),
                                   ids.data(), nullptr));
  });
  const Memory idle = memory_of_process();
  sample.peak_kib = static_cast<double>(idle.peak - before.now) / nranks;
  sample.idle_kib = static_cast<double>(idle.now - before.now) / nranks;
  sample.first_ms = on_all(nranks, [&](int rank) {
    const auto i = static_cast<std::size_t>(rank);
    check(cudaSetDevice(rank % devices));
    cudaStream_t stream = nullptr;
    check(cudaStreamCreate(&stream));
    check(ncclAllReduce(data[i], data[i], 1, ncclFloat, ncclSum, comms[i], stream));
    check(cudaStreamSynchronize(stream));
    check(cudaStreamDestroy(stream));
  });
  on_all(nranks, [&](int rank) { check(ncclCommDestroy(comms[static_cast<std::size_t>(rank)])); });
  for (float* one : data) check(cudaFree(one));
  return sample;
}

struct Summary {
  double median = 0;
  double least = 0;
  double most = 0;
};

Summary summarise(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front(), values.back()};
}

nlohmann::json to_json(const Summary& summary) {
  return {{"median", summary.median}, {"least", summary.least}, {"most", summary.most}};
}

void run(const Arguments& arguments) {
  std::printf("# start-up of a communicator: ranks are threads of one process, %u cores, %d ids, %d repeats\n",
              std::thread::hardware_concurrency(), arguments.ids, arguments.repeats);
  std::printf("%8s %10s %10s %10s %20s %15s %15s\n", "ranks", "init ms", "least", "most", "first all-reduce ms",
              "peak KiB/rank", "idle KiB/rank");
  nlohmann::json rows = nlohmann::json::array();
  for (int nranks = 2; nranks <= arguments.most; nranks *= 2) {
    std::vector<Sample> samples;
    for (int i = 0; i < arguments.repeats; ++i) samples.push_back(measure(nranks, arguments.ids));
    const auto summary_of = [&](double Sample::*value) {
      std::vector<double> values;
      for (const Sample& sample : samples) values.push_back(sample.*value);
      return summarise(values);
    };
    const Summary init = summary_of(&Sample::init_ms);
    const Summary first = summary_of(&Sample::first_ms);
    const Summary peak = summary_of(&Sample::peak_kib);
    const Summary idle = summary_of(&Sample::idle_kib);
    std::printf("%8d %10.1f %10.1f %10.1f %20.1f %15.0f %15.0f\n", nranks, init.median, init.least, init.most,
                first.median, peak.most, idle.most);
    std::fflush(stdout);
    rows.push_back({{"ranks", nranks},
                    {"init_ms", to_json(init)},
                    {"first_all_reduce_ms", to_json(first)},
                    {"peak_kib_per_rank", to_json(peak)},
                    {"idle_kib_per_rank", to_json(idle)}});
  }
  if (arguments.json.empty()) return;
  std::ofstream(arguments.json) << nlohmann::json{{"what", "start-up of a communicator, threads of one process"},
                                                  {"cores", std::thread::hardware_concurrency()},
                                                  {"ids", arguments.ids},
                                                  {"repeats", arguments.repeats},
                                                  {"rows", rows}}
                                       .dump(2)
                                << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "startup: %s\n", error.what());
    return 1;
  }
  return 0;
}
