// Compares MPI_Allreduce and MPI_Allgather with ncclAllReduce and ncclAllGather on virtual GPUs: one rank per process,
// the same processes and buffers, the two libraries in turns. Each NCCL call is followed by a synchronisation of its
// stream, as an MPI call returns when it is done.
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBatches = 9;
constexpr int kMostIterations = 100;
constexpr double kBatchSeconds = 0.1;

void check(bool good, const char* what, const char* why) {
  if (good) return;
  std::fprintf(stderr, "mpi_compare: %s: %s\n", what, why);
  MPI_Abort(MPI_COMM_WORLD, 2);
  std::abort();
}

void check(ncclResult_t result, const char* what) { check(result == ncclSuccess, what, ncclGetLastError(nullptr)); }
void check(cudaError_t result, const char* what) { check(result == cudaSuccess, what, cudaGetErrorString(result)); }

struct World {
  int rank = 0;
  int ranks = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* send = nullptr;
  float* recv = nullptr;
  float* other = nullptr;  // MPI's result, for comparison
};

enum class Operation { kAllReduce, kAllGather };

struct Work {
  Operation operation;
  size_t bytes;  // of the receive buffer
  size_t count(int ranks) const {
    return operation == Operation::kAllReduce ? bytes / 4 : bytes / 4 / static_cast<size_t>(ranks);
  }
};

void run_mpi(const World& world, const Work& work, float* recv) {
  const int count = static_cast<int>(work.count(world.ranks));
  if (work.operation == Operation::kAllReduce) {
    MPI_Allreduce(world.send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else {
    MPI_Allgather(world.send, count, MPI_FLOAT, recv, count, MPI_FLOAT, MPI_COMM_WORLD);
  }
}

void run_nccl(const World& world, const Work& work) {
  const size_t count = work.count(world.ranks);
  if (work.operation == Operation::kAllReduce) {
    check(ncclAllReduce(world.send, world.recv, count, ncclFloat, ncclSum, world.comm, world.stream), "ncclAllReduce");
  } else {
    check(ncclAllGather(world.send, world.recv, count, ncclFloat, world.comm, world.stream), "ncclAllGather");
  }
  check(cudaStreamSynchronize(world.stream), "cudaStreamSynchronize");
}

// Seconds per call on the slowest rank.
template <typename Body>
double timed(int iterations, const Body& body) {
  MPI_Barrier(MPI_COMM_WORLD);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < iterations; ++i) body();
  double seconds = std::chrono::duration<double>(Clock::now() - start).count() / iterations;
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Figures {
  int iterations = 0;
  std::vector<double> mpi;
  std::vector<double> nccl;
  bool equal = false;
};

// Small whole numbers: both libraries must come to the same bits.
bool results_equal(const World& world, const Work& work) {
  const size_t bytes =
      work.count(world.ranks) * 4 * (work.operation == Operation::kAllReduce ? 1 : static_cast<size_t>(world.ranks));
  std::memset(world.recv, 0xA5, bytes);
  run_mpi(world, work, world.other);
  run_nccl(world, work);
  int equal = std::memcmp(world.recv, world.other, bytes) == 0 ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &equal, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return equal == 1;
}

Figures measure(const World& world, const Work& work) {
  const auto mpi = [&] { run_mpi(world, work, world.recv); };
  const auto nccl = [&] { run_nccl(world, work); };
  Figures figures;
  figures.equal = results_equal(world, work);
  const double slower = std::max({timed(2, mpi), timed(2, nccl), 1e-7});
  figures.iterations = std::clamp(static_cast<int>(kBatchSeconds / slower), 1, kMostIterations);
  timed(figures.iterations, mpi);
  timed(figures.iterations, nccl);
  for (int batch = 0; batch < kBatches; ++batch) {
    figures.mpi.push_back(timed(figures.iterations, mpi) * 1e6);
    figures.nccl.push_back(timed(figures.iterations, nccl) * 1e6);
  }
  return figures;
}

World join() {
  World world;
  MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world.ranks);
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  check(cudaSetDevice(world.rank % devices), "cudaSetDevice");
  ncclUniqueId id;
  if (world.rank == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  check(ncclCommInitRank(&world.comm, world.ranks, id, world.rank), "ncclCommInitRank");
  check(cudaStreamCreate(&world.stream), "cudaStreamCreate");
  return world;
}

void allocate(World& world, size_t bytes) {
  check(cudaMalloc(reinterpret_cast<void**>(&world.send), bytes), "cudaMalloc");
  check(cudaMalloc(reinterpret_cast<void**>(&world.recv), bytes), "cudaMalloc");
  check(cudaMalloc(reinterpret_cast<void**>(&world.other), bytes), "cudaMalloc");
  for (size_t i = 0; i < bytes / 4; ++i) {
    world.send[i] = static_cast<float>((i * 7 + static_cast<size_t>(world.rank) * 13) % 1024);
  }
}

nlohmann::ordered_json report(const World& world, const Work& work, const Figures& figures) {
  const char* name = work.operation == Operation::kAllReduce ? "all_reduce" : "all_gather";
  const double mpi = median(figures.mpi);
  const double nccl = median(figures.nccl);
  std::printf(" %-11s %10zu %5d %12.2f %12.2f %8.2f %s\n", name, work.bytes, figures.iterations, mpi, nccl, mpi / nccl,
              figures.equal ? "" : "RESULTS DIFFER");
  std::fflush(stdout);
  return {{"operation", name},
          {"bytes", work.bytes},
          {"ranks", world.ranks},
          {"iterations", figures.iterations},
          {"mpi_us", mpi},
          {"nitinol_us", nccl},
          {"ratio", mpi / nccl},
          {"mpi_batches_us", figures.mpi},
          {"nitinol_batches_us", figures.nccl},
          {"equal", figures.equal}};
}

nlohmann::ordered_json describe(const World& world) {
  char mpi_version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  int nccl_version = 0;
  MPI_Get_library_version(mpi_version, &length);
  check(ncclGetVersion(&nccl_version), "ncclGetVersion");
  const char* yields = std::getenv("OMPI_MCA_mpi_yield_when_idle");
  std::string mpi(mpi_version);
  mpi = mpi.substr(0, mpi.find(','));
  std::printf("# %s against Nitinol (NCCL %d), float, %d processes; MPI told to yield: %s\n", mpi.c_str(), nccl_version,
              world.ranks, yields != nullptr ? yields : "its own choice");
  std::printf("# medians of %d batches, slowest rank; bytes of the receive buffer; ratio above 1: Nitinol is faster\n",
              kBatches);
  std::printf("#%-11s %10s %5s %12s %12s %8s\n", "operation", "bytes", "iter", "MPI us", "Nitinol us", "ratio");
  return {{"tool", "mpi_compare"}, {"mpi", mpi}, {"ranks", world.ranks}, {"yield", yields != nullptr ? yields : ""}};
}

}  // namespace

// Arguments: least and most bytes, factor, and optionally a file for the JSON.
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const size_t least = std::max(1ULL, argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 8);
  const size_t most = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 16 << 20;
  const size_t factor = std::max(2ULL, argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 2);
  World world = join();
  allocate(world, most);
  nlohmann::ordered_json root;
  if (world.rank == 0) root = describe(world);
  bool equal = true;
  for (const Operation operation : {Operation::kAllReduce, Operation::kAllGather}) {
    for (size_t bytes = least; bytes <= most; bytes *= factor) {
      const Work work{operation, bytes};
      if (work.count(world.ranks) == 0) continue;
      const Figures figures = measure(world, work);
      equal = equal && figures.equal;
      if (world.rank == 0) root["rows"].push_back(report(world, work, figures));
    }
  }
  if (world.rank == 0 && argc > 4) {
    std::FILE* file = std::fopen(argv[4], "w");
    check(file != nullptr, argv[4], "cannot be written");
    std::fputs((root.dump(1) + "\n").c_str(), file);
    std::fclose(file);
  }
  check(ncclCommDestroy(world.comm), "ncclCommDestroy");
  MPI_Finalize();
  return equal ? 0 : 1;
}
