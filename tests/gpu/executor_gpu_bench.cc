// Times the CUDA executor's algorithms, protocols and numbers of channels against each other and, if it is named,
// against an installed libnccl.so.2, all from CUDA graphs. Usage: executor_gpu_bench RANKS GPUS [LIBNCCL|-]
// [COLLECTIVE] [TYPE] [LEAST] [MOST] [FACTOR] Prints per size the best choice; the file named by NITINOL_BENCH_CSV gets
// every timing, NITINOL_BENCH_CTAS limits the CTAs, NITINOL_BENCH_HOST=1 goes through host memory, NITINOL_BENCH_ROOT
// is the root. NITINOL_BENCH_CHANNELS and NITINOL_BENCH_CHUNKS (bytes, 0: what is usual) list what LL128 is tried with
// alone, if the former is set.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "algorithm/table.h"
#include "gpu_ranks.h"
#include "nccl.h"

namespace nitinol::gpu_testing {

namespace {

constexpr size_t kLargest = size_t{256} << 20;

int root() {
  const char* text = std::getenv("NITINOL_BENCH_ROOT");
  return text == nullptr ? 0 : std::atoi(text);
}

bool through_host_memory() { return std::getenv("NITINOL_BENCH_HOST") != nullptr; }

struct Library {
  decltype(&ncclCommInitAll) init = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclGroupStart) start = nullptr;
  decltype(&ncclGroupEnd) end = nullptr;
  std::vector<ncclComm_t> comms;
};

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

Library open_nccl(const char* path, int ranks) {
  Library l;
  void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::printf("%s\n", ::dlerror());
    return l;
  }
  find(library, "ncclCommInitAll", l.init);
  find(library, "ncclAllReduce", l.all_reduce);
  find(library, "ncclAllGather", l.all_gather);
  find(library, "ncclReduceScatter", l.reduce_scatter);
  find(library, "ncclBroadcast", l.broadcast);
  find(library, "ncclReduce", l.reduce);
  find(library, "ncclSend", l.send);
  find(library, "ncclRecv", l.recv);
  find(library, "ncclGroupStart", l.start);
  find(library, "ncclGroupEnd", l.end);
  l.comms.resize(static_cast<size_t>(ranks));
  if (l.init(l.comms.data(), ranks, nullptr) != ncclSuccess) l.comms.clear();
  return l;
}

class Bench {
 public:
  Bench(int ranks, int gpus, const char* nccl, size_t largest)
      : ranks_(ranks, gpus, {.peer_access = !through_host_memory()}) {
    for (int rank = 0; rank < ranks; ++rank) {
      inputs_.emplace_back(ranks_.device(rank), largest);
      outputs_.emplace_back(ranks_.device(rank), largest);
    }
    if (nccl != nullptr) nccl_ = open_nccl(nccl, ranks);
    if (const char* path = std::getenv("NITINOL_BENCH_CSV")) csv_ = std::fopen(path, "a");
  }

  /// `bytes` as nccl-tests counts them: the larger of the two buffers.
  void compare(Collective what, DataType type, size_t bytes) {
    const auto n = static_cast<size_t>(ranks_.size());
    const bool blocks =
        what == Collective::kAllGather || what == Collective::kReduceScatter || what == Collective::kAllToAll;
    const size_t count = bytes / bytes_of(type) / (blocks ? n : 1);
    if (count == 0) return;
    const double reference =
        nccl_.comms.empty() ? 0 : time([&](int rank) { nccl_call(what, type, count, rank); }, bytes);
    double best = 1e30;
    std::string best_name;
    for (const Plan& plan : candidates(what, bytes)) {
      const double us = time_plan(what, type, count, plan, bytes);
      char name[80];
      std::snprintf(name, sizeof name, "%s/%s%s/%d/%zu", name_of(plan.algorithm), name_of(plan.protocol),
                    plan.joined  ? "Joined"
                    : plan.apart ? "Apart"
                                 : "",
                    plan.channels, plan.chunk);
      if (csv_ != nullptr) {
        std::fprintf(csv_, "%s,%d,%zu,%zu,%s,%s,%d,%zu,%.2f,%.2f\n", name_of(what), static_cast<int>(type), n, bytes,
                     name_of(plan.algorithm),
                     plan.joined  ? "Joined"
                     : plan.apart ? "Apart"
                                  : name_of(plan.protocol),
                     plan.channels, plan.chunk, us, reference);
      }
      if (us < best) {
        best = us;
        best_name = name;
      }
    }
    const double factor = what == Collective::kAllReduce ? 2.0 * static_cast<double>(n - 1) / static_cast<double>(n)
                          : blocks                       ? static_cast<double>(n - 1) / static_cast<double>(n)
                                                         : 1.0;
    std::printf("%-13s %10zu  %9.2f us  %6.1f GB/s  %-20s nccl %9.2f us  ratio %.2f\n", name_of(what), bytes, best,
                static_cast<double>(bytes) * factor / best * 1e-3, best_name.c_str(), reference, reference / best);
    std::fflush(stdout);
    if (csv_ != nullptr) std::fflush(csv_);
  }

  void messages(size_t bytes) {
    const int n = ranks_.size();
    const auto launch_of = [&](int rank) {
      Launch launch;
      launch.messages.push_back(
          {MessageWork::Direction::kSend, (rank + 1) % n, inputs_[static_cast<size_t>(rank)].get(), bytes});
      launch.messages.push_back(
          {MessageWork::Direction::kReceive, (rank + n - 1) % n, outputs_[static_cast<size_t>(rank)].get(), bytes});
      return launch;
    };
    for (int rank = 0; rank < n; ++rank) ranks_.executor(rank).prepare(launch_of(rank));
    const double us =
        time([&](int rank) { ranks_.executor(rank).launch(launch_of(rank), ranks_.stream(rank)); }, bytes);
    double reference = 0;
    if (!nccl_.comms.empty()) {
      reference = time(
          [&](int rank) {
            const auto r = static_cast<size_t>(rank);
            nccl_.start();
            nccl_.send(inputs_[r].get(), bytes, ncclUint8, (rank + 1) % n, nccl_.comms[r], ranks_.stream(rank));
            nccl_.recv(outputs_[r].get(), bytes, ncclUint8, (rank + n - 1) % n, nccl_.comms[r], ranks_.stream(rank));
            nccl_.end();
          },
          bytes);
    }
    std::printf("%-13s %10zu  %9.2f us  %6.1f GB/s  %-20s nccl %9.2f us  ratio %.2f\n", "SendRecv", bytes, us,
                static_cast<double>(bytes) / us * 1e-3, "", reference, reference / us);
    std::fflush(stdout);
  }

 private:
  /// Where every message crosses the bus twice: few sensible choices, but other ones.
  std::vector<Plan> candidates_through_host(Collective what, size_t bytes) {
    std::vector<Plan> plans;
    for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kRing}) {
      if (!algorithm::exists(what, algorithm) || (algorithm == Algorithm::kRing && !rooted(what))) continue;
      if (algorithm == Algorithm::kTwoShot && bytes < 4096) continue;
      for (int channels = 1; channels <= ranks_.limits().channels; channels *= 2) {
        if (channels > 1 && bytes / static_cast<size_t>(channels) < 1024) continue;
        if (channels < 8 && bytes > (256 << 10)) continue;
        if (bytes <= (4 << 20)) plans.push_back({algorithm, Protocol::kLL, channels, 0});
        if (bytes >= (16 << 10)) plans.push_back({algorithm, Protocol::kSimple, channels, 0});
        for (const size_t chunk : {4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10}) {
          if (bytes >= (512 << 10)) plans.push_back({algorithm, Protocol::kSimple, channels, chunk});
        }
      }
    }
    return plans;
  }

  /// The numbers in a variable, which commas divide. Empty if it is not set.
  static std::vector<size_t> list_in(const char* variable) {
    std::vector<size_t> list;
    const char* text = std::getenv(variable);
    while (text != nullptr && *text != 0) {
      char* end = nullptr;
      list.push_back(std::strtoul(text, &end, 10));
      text = *end == ',' ? end + 1 : nullptr;
    }
    return list;
  }

  /// By LL128, with the channels and chunks that are asked for.
  static std::vector<Plan> candidates_asked_for(Collective what) {
    std::vector<Plan> plans;
    std::vector<size_t> chunks = list_in("NITINOL_BENCH_CHUNKS");
    if (chunks.empty()) chunks = {0};
    for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kRing}) {
      if (!algorithm::exists(what, algorithm)) continue;
      for (const size_t channels : list_in("NITINOL_BENCH_CHANNELS")) {
        for (const size_t chunk : chunks) {
          plans.push_back({algorithm, Protocol::kLL128, static_cast<int>(channels), chunk});
        }
      }
    }
    return plans;
  }

  std::vector<Plan> candidates(Collective what, size_t bytes) {
    if (through_host_memory()) return candidates_through_host(what, bytes);
    if (std::getenv("NITINOL_BENCH_CHANNELS") != nullptr) return candidates_asked_for(what);
    std::vector<Plan> plans;
    const int most = ranks_.limits().channels;
    const bool blocks =
        what == Collective::kAllGather || what == Collective::kReduceScatter || what == Collective::kAllToAll;
    const size_t per_peer = blocks ? bytes / static_cast<size_t>(ranks_.size()) : bytes;
    std::vector<int> numbers;
    for (int channels = 1; channels < most; channels *= 2) numbers.push_back(channels);
    numbers.push_back(most);
    for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kRing}) {
      if (!algorithm::exists(what, algorithm)) continue;
      if (algorithm == Algorithm::kRing && (!rooted(what) || bytes < (size_t{1} << 20))) continue;
      if (algorithm == Algorithm::kOneShot && !blocks && bytes > (size_t{1} << 20) && ranks_.size() > 2) continue;
      if (algorithm == Algorithm::kTwoShot && bytes < 8192) continue;
      for (const int channels : numbers) {
        const size_t each = per_peer / static_cast<size_t>(channels);
        if (channels > 1 && each < 512) continue;
        if (per_peer > (1 << 20) && channels < 8 && channels < most) continue;
        if (per_peer <= (256 << 10) && channels <= 16) plans.push_back({algorithm, Protocol::kLL, channels, 0});
        for (const size_t parts : {1, 2, 4}) {
          const size_t blocks_of_share = algorithm == Algorithm::kOneShot ? 1 : static_cast<size_t>(ranks_.size());
          const size_t chunk = each / blocks_of_share / parts;
          if (parts > 1 && chunk < 4096) continue;
          if (per_peer >= 4096 && per_peer <= (size_t{16} << 20)) {
            plans.push_back({algorithm, Protocol::kLL128, channels, parts == 1 ? 0 : chunk});
          }
        }
        for (const size_t chunk : {0, 128 << 10, 64 << 10, 32 << 10}) {
          if (per_peer >= (512 << 10) && channels >= std::min(32, most)) {
            plans.push_back({algorithm, Protocol::kSimple, channels, chunk});
          }
        }
      }
    }
    const Limits limits = ranks_.limits();
    for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot}) {
      if (!algorithm::suits_joined_parts(what, algorithm, DataType::kFloat32)) continue;
      for (int channels = limits.joined.channels; per_peer >= (512 << 10) && channels >= 8; channels -= 8) {
        for (const size_t chunk : {0, 48 << 10, 32 << 10, 16 << 10}) {
          plans.push_back({.algorithm = algorithm, .channels = channels, .chunk = chunk, .joined = true});
        }
      }
    }
    for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot}) {
      if (!algorithm::suits_parts(what, algorithm)) continue;
      for (int channels = limits.apart(what).channels; per_peer >= (512 << 10) && channels >= 16;
           channels -= channels / 4) {
        for (const size_t chunk : {0, 64 << 10, 32 << 10}) {
          plans.push_back({algorithm, Protocol::kSimple, channels, chunk, true});
        }
      }
    }
    return plans;
  }

  double time_plan(Collective what, DataType type, size_t count, const Plan& plan, size_t bytes) {
    const auto launch_of = [&](int rank) {
      CollectiveWork work;
      work.what = what;
      work.input = inputs_[static_cast<size_t>(rank)].get();
      work.output = outputs_[static_cast<size_t>(rank)].get();
      work.root = rooted(what) ? root() : 0;
      work.type = reduces(what) ? type : DataType::kUint8;
      work.count = reduces(what) ? count : count * bytes_of(type);
      work.plan = plan;
      work.plan.chunk = plan.chunk / bytes_of(work.type) / 16 * 16;
      return Launch{{work}, {}};
    };
    for (int rank = 0; rank < ranks_.size(); ++rank) ranks_.executor(rank).prepare(launch_of(rank));
    return time([&](int rank) { ranks_.executor(rank).launch(launch_of(rank), ranks_.stream(rank)); }, bytes);
  }

  void nccl_call(Collective what, DataType type, size_t count, int rank) {
    const auto r = static_cast<size_t>(rank);
    const auto t = static_cast<ncclDataType_t>(type);
    void* in = inputs_[r].get();
    void* out = outputs_[r].get();
    const cudaStream_t stream = ranks_.stream(rank);
    switch (what) {
      case Collective::kAllReduce: nccl_.all_reduce(in, out, count, t, ncclSum, nccl_.comms[r], stream); break;
      case Collective::kAllGather: nccl_.all_gather(in, out, count, t, nccl_.comms[r], stream); break;
      case Collective::kReduceScatter: nccl_.reduce_scatter(in, out, count, t, ncclSum, nccl_.comms[r], stream); break;
      case Collective::kBroadcast: nccl_.broadcast(in, out, count, t, root(), nccl_.comms[r], stream); break;
      case Collective::kReduce: nccl_.reduce(in, out, count, t, ncclSum, root(), nccl_.comms[r], stream); break;
      case Collective::kAllToAll:
        nccl_.start();
        for (int peer = 0; peer < ranks_.size(); ++peer) {
          const size_t at = static_cast<size_t>(peer) * count * bytes_of(type);
          nccl_.send(static_cast<char*>(in) + at, count, t, peer, nccl_.comms[r], stream);
          nccl_.recv(static_cast<char*>(out) + at, count, t, peer, nccl_.comms[r], stream);
        }
        nccl_.end();
        break;
      case Collective::kGather:
      case Collective::kScatter: break;
    }
  }

  /// The same for every rank, in a group of NCCL's where that is what is timed.
  template <class Step>
  void on_all(Step&& step) {
    if (!nccl_.comms.empty()) nccl_.start();
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const DeviceGuard on(ranks_.device(rank));
      step(rank);
    }
    if (!nccl_.comms.empty()) nccl_.end();
  }

  /// A graph of calls for each rank.
  template <class Call>
  std::vector<cudaGraphExec_t> capture(Call&& call, int calls) {
    on_all([&](int rank) {
      cuda_check(cudaStreamBeginCapture(ranks_.stream(rank), cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
    });
    for (int i = 0; i < calls; ++i) on_all(call);
    std::vector<cudaGraphExec_t> graphs;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const DeviceGuard on(ranks_.device(rank));
      cudaGraph_t graph = nullptr;
      cuda_check(cudaStreamEndCapture(ranks_.stream(rank), &graph), "cudaStreamEndCapture");
      cuda_check(cudaGraphInstantiate(&graphs.emplace_back(), graph, 0), "cudaGraphInstantiate");
      cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    }
    return graphs;
  }

  /// `start` is recorded before the first of the rank that starts last.
  void replay(const std::vector<cudaGraphExec_t>& graphs, int times, cudaEvent_t start) {
    for (int i = 0; i < times; ++i) {
      for (int rank = 0; rank < ranks_.size(); ++rank) {
        const DeviceGuard on(ranks_.device(rank));
        if (start != nullptr && i == 0 && rank == ranks_.size() - 1) {
          cuda_check(cudaEventRecord(start, ranks_.stream(rank)), "cudaEventRecord");
        }
        cuda_check(cudaGraphLaunch(graphs[static_cast<size_t>(rank)], ranks_.stream(rank)), "cudaGraphLaunch");
      }
    }
  }

  /// Microseconds of one call: graphs of calls on every rank, replayed; as the rank sees it that starts last. The best
  /// of three.
  template <class Call>
  double time(Call&& call, size_t bytes) {
    constexpr int kReplays = 3;
    const int calls = bytes > (size_t{8} << 20) ? 4 : 32;
    const std::vector<cudaGraphExec_t> graphs = capture(call, calls);
    const int last = ranks_.size() - 1;
    const DeviceGuard on(ranks_.device(last));
    cudaEvent_t start = nullptr;
    cudaEvent_t stop = nullptr;
    cuda_check(cudaEventCreate(&start), "cudaEventCreate");
    cuda_check(cudaEventCreate(&stop), "cudaEventCreate");
    replay(graphs, 1, nullptr);
    ranks_.synchronize();
    double best = 1e30;
    for (int attempt = 0; attempt < 3; ++attempt) {
      replay(graphs, kReplays, start);
      cuda_check(cudaEventRecord(stop, ranks_.stream(last)), "cudaEventRecord");
      ranks_.synchronize();
      float ms = 0;
      cuda_check(cudaEventElapsedTime(&ms, start, stop), "cudaEventElapsedTime");
      best = std::min(best, ms * 1000.0 / (kReplays * calls));
    }
    cuda_check(cudaEventDestroy(start), "cudaEventDestroy");
    cuda_check(cudaEventDestroy(stop), "cudaEventDestroy");
    for (const cudaGraphExec_t graph : graphs) cuda_check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
    return best;
  }

  Ranks ranks_;
  std::vector<Buffer> inputs_;
  std::vector<Buffer> outputs_;
  Library nccl_;
  std::FILE* csv_ = nullptr;
};

/// The size after `bytes`: by the factor, or if that is 0 more of them where algorithms and protocols change.
size_t next_size(size_t bytes, size_t factor) {
  const bool steady = bytes < (size_t{64} << 10) || bytes >= (size_t{16} << 20);
  if (factor != 0) return bytes * factor;
  return bytes * (steady ? 4 : 2);
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::printf("usage: %s RANKS GPUS [LIBNCCL|-] [COLLECTIVE] [TYPE] [LEAST] [MOST] [FACTOR]\n", argv[0]);
    return 2;
  }
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const char* nccl = argc > 3 && std::string(argv[3]) != "-" ? argv[3] : nullptr;
  const std::string only = argc > 4 ? argv[4] : "";
  const auto type = static_cast<DataType>(argc > 5 ? std::atoi(argv[5]) : static_cast<int>(DataType::kFloat32));
  const size_t most = argc > 7 ? std::min(kLargest, size_t{std::strtoull(argv[7], nullptr, 0)}) : kLargest;
  const size_t factor = argc > 8 ? std::strtoull(argv[8], nullptr, 0) : 0;
  Bench bench(std::atoi(argv[1]), std::atoi(argv[2]), nccl, most);
  for (const Collective what : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                Collective::kAllToAll, Collective::kBroadcast, Collective::kReduce}) {
    if (!only.empty() && only != name_of(what)) continue;
    for (size_t bytes = argc > 6 ? std::strtoull(argv[6], nullptr, 0) : 1024; bytes <= most;
         bytes = next_size(bytes, factor)) {
      bench.compare(what, type, bytes);
    }
  }
  for (size_t bytes = argc > 6 ? std::strtoull(argv[6], nullptr, 0) : 8;
       (only.empty() || only == "SendRecv") && bytes <= most; bytes *= 8)
    bench.messages(bytes);
  return 0;
}

}  // namespace

}  // namespace nitinol::gpu_testing

int main(int argc, char** argv) { return nitinol::gpu_testing::run(argc, argv); }
