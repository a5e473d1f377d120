// Large operations through the public calls, again and again for a while (LARGE_SECONDS, 5 if not set) with other
// numbers each time: one right behind the other or when all ranks are ready, among small ones or alone, in graphs or
// not. GPUs write and compare the numbers, so that a minute holds tens of thousands of launches: what goes wrong in one
// launch of some hundreds shows here. LARGE_ONLY=broadcast tries that operation alone.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gpus.h"
#include "nccl.h"
#include "nitinol.h"
#include "operations.h"

namespace {

using Clock = std::chrono::steady_clock;

namespace gpu_testing = nitinol::gpu_testing;
using gpu_testing::gpus;
using gpu_testing::What;

// No kernel may be loaded while another waits.
[[maybe_unused]] const int kLoading = ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);

constexpr std::array<const char*, gpu_testing::kKinds> kNames = {"all-reduce",     "broadcast",  "reduce", "all-gather",
                                                                 "reduce-scatter", "all-to-all", "next"};

constexpr size_t kLeast = size_t{1} << 18;  ///< elements: 1 MB
constexpr size_t kMost = size_t{1} << 24;   ///< of the larger buffer of an operation: 64 MB

constexpr float kPoison = -1;

/// One operation, the same on every rank, on floats.
struct Operation : gpu_testing::Operation {
  uint32_t turn = 0;    ///< makes the numbers others than before
  int repetitions = 1;  ///< one right behind the other, into the same output
};

/// How the operations of a round are issued.
struct Style {
  bool in_graphs;
  bool together;     ///< each when all ranks are done with the one before
  bool among_small;  ///< with small operations before and after
};

/// What was found wrong on a rank.
struct Finding {
  unsigned long long elements;
  unsigned long long first;  ///< the lowest index
  uint32_t turn;
  float got;
  float wanted;
};

/// Element `i` of the input of `rank`, of which all sums are exact.
__host__ __device__ float number(uint32_t rank, uint32_t turn, size_t i) {
  uint32_t x = static_cast<uint32_t>(i) * 0x9e3779b9U + turn * 0x85ebca6bU + rank * 0xc2b2ae35U;
  x ^= x >> 15;
  x *= 0x2c1b3c6dU;
  return static_cast<float>((x ^ x >> 13) & 0xffffU);
}

__global__ void write_numbers(float* to, size_t count, int rank, uint32_t turn) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    to[i] = number(rank, turn, i);
  }
}

/// Compares and poisons.
__global__ void compare(float* got, size_t count, Operation one, int rank, int ranks, Finding* found) {
  const auto input = [&one](int r, size_t at) { return number(r, one.turn, at); };
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const float wanted = gpu_testing::expected(one, rank, ranks, i, input);
    const float is = got[i];
    got[i] = kPoison;
    if (is == wanted) continue;
    atomicAdd(&found->elements, 1ULL);
    if (atomicMin(&found->first, i) > i) {
      found->turn = one.turn;
      found->got = is;  // of about the first: enough to begin with
      found->wanted = wanted;
    }
  }
}

What draw_what(std::mt19937& random) {
  const char* const only = std::getenv("LARGE_ONLY");
  const auto named = std::find_if(kNames.begin(), kNames.end(),
                                  [only](const char* name) { return only != nullptr && std::strcmp(only, name) == 0; });
  return static_cast<What>(named == kNames.end() ? random() % kNames.size() : named - kNames.begin());
}

std::vector<Operation> draw_round(std::mt19937& random, int ranks) {
  std::vector<Operation> round(16);
  for (Operation& one : round) {
    one.what = draw_what(random);
    const size_t blocks = gpu_testing::most_blocks(one.what, ranks);
    const size_t range = (kMost - kLeast) / blocks / (random() % 2 == 0 ? 1 : 8);
    one.count = kLeast / blocks + random() % range;
    if (random() % 2 == 0) one.count &= ~size_t{0xff};
    one.root = static_cast<int>(random() % static_cast<uint32_t>(ranks));
    one.turn = random();
    one.repetitions = 1 + static_cast<int>(random() % 3);
  }
  return round;
}

Style draw_style(std::mt19937& random) {
  const uint32_t bits = random();
  return {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
}

/// One rank with its buffers.
class Rank {
 public:
  Rank(int rank, int ranks, ncclComm_t comm) : rank_(rank), ranks_(ranks), comm_(comm) {}

  void set_up() {
    CUDA_OK(cudaMalloc(&input_, kMost * sizeof(float)));
    CUDA_OK(cudaMalloc(&output_, kMost * sizeof(float)));
    CUDA_OK(cudaMalloc(&small_, 64 * 1024));
    CUDA_OK(cudaMalloc(&found_, sizeof(Finding)));
    CUDA_OK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CUDA_OK(cudaMemset(found_, 0, sizeof(Finding)));
    CUDA_OK(cudaMemset(&found_->first, 0xff, sizeof found_->first));
    CUDA_OK(cudaDeviceSynchronize());
    NCCL_OK(nitinolCommSetTimeout(comm_, 30));  // after a failure the others are not to wait for ever
  }
  void tear_down() {
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaFree(input_), cudaSuccess);
    EXPECT_EQ(cudaFree(output_), cudaSuccess);
    EXPECT_EQ(cudaFree(small_), cudaSuccess);
    EXPECT_EQ(cudaFree(found_), cudaSuccess);
  }

  /// Before the operations of a round: no kernel may run while graphs are made.
  void make_graphs(const std::vector<Operation>& round, const Style& style) {
    for (const Operation& one : round) {
      cudaGraph_t graph = nullptr;
      CUDA_OK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
      call_among(one, style);
      CUDA_OK(cudaStreamEndCapture(stream_, &graph));
      CUDA_OK(cudaGraphInstantiate(&graphs_.emplace_back(), graph, 0));
      CUDA_OK(cudaGraphDestroy(graph));
    }
  }
  void drop_graphs() {
    for (const cudaGraphExec_t graph : graphs_) CUDA_OK(cudaGraphExecDestroy(graph));
    graphs_.clear();
  }
  /// The operation with index `i` of the round.
  void issue(const Operation& one, const Style& style, size_t i) {
    const size_t in = one.count * gpu_testing::input_blocks(one.what, ranks_);
    const size_t out = one.count * gpu_testing::output_blocks(one.what, ranks_);
    write_numbers<<<kCtas, kThreads, 0, stream_>>>(input_, in, rank_, one.turn);
    for (int repetition = 0; repetition < one.repetitions; ++repetition) {
      if (style.in_graphs) {
        CUDA_OK(cudaGraphLaunch(graphs_[i], stream_));
      } else {
        call_among(one, style);
      }
    }
    if (one.what == What::kReduce && one.root != rank_) return;
    compare<<<kCtas, kThreads, 0, stream_>>>(output_, out, one, rank_, ranks_, found_);
  }
  void synchronize() { CUDA_OK(cudaStreamSynchronize(stream_)); }
  ncclResult_t async_error() const {
    ncclResult_t error = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(comm_, &error), ncclSuccess);
    return error;
  }
  /// A small reduction, which ranks but the root are done with at once.
  void issue_small(int root) { NCCL_OK(ncclReduce(input_, small_, 2, ncclFloat, ncclSum, root, comm_, stream_)); }
  void issue_alone(const Operation& one) { NCCL_OK(call(one)); }

  void expect_nothing_found(const std::vector<Operation>& round, const Style& style) {
    Finding found{};
    CUDA_OK(cudaMemcpy(&found, found_, sizeof found, cudaMemcpyDeviceToHost));
    if (found.elements == 0) return;
    std::string operations;
    for (const Operation& one : round) {
      operations += std::string("\n  ") + kNames[static_cast<size_t>(one.what)] + " of " + std::to_string(one.count) +
                    " root " + std::to_string(one.root) + " turn " + std::to_string(one.turn);
    }
    ADD_FAILURE() << "rank " << rank_ << ": " << found.elements << " wrong, of turn " << found.turn << " element "
                  << found.first << " is " << found.got << ", not " << found.wanted
                  << (style.in_graphs ? ", in graphs" : "") << (style.together ? ", together" : "")
                  << (style.among_small ? ", among small ones" : "") << operations;
  }

 private:
  static constexpr int kCtas = 64;
  static constexpr int kThreads = 256;

  void call_among(const Operation& one, const Style& style) {
    if (style.among_small) issue_small(one.root);
    issue_alone(one);
    if (style.among_small) {
      NCCL_OK(ncclAllReduce(input_, small_, 212, ncclFloat, ncclSum, comm_, stream_));
      NCCL_OK(ncclAllGather(input_, small_, 39, ncclFloat, comm_, stream_));
    }
  }
  ncclResult_t call(const Operation& one) {
    return gpu_testing::call(one, input_, output_, rank_, ranks_, comm_, stream_);
  }

  int rank_;
  int ranks_;
  ncclComm_t comm_;
  float* input_ = nullptr;
  float* output_ = nullptr;
  float* small_ = nullptr;
  Finding* found_ = nullptr;
  std::vector<cudaGraphExec_t> graphs_;
  cudaStream_t stream_ = nullptr;
};

void make_communicators(const std::vector<int>& devices, int max_ctas, std::vector<ncclComm_t>& comms) {
  const auto ranks = static_cast<int>(devices.size());
  comms.resize(ranks);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.maxCTAs = max_ctas;
  ncclUniqueId id;
  NCCL_OK(ncclGetUniqueId(&id));
  NCCL_OK(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank) {
    CUDA_OK(cudaSetDevice(devices[rank]));
    NCCL_OK(ncclCommInitRankConfig(&comms[rank], ranks, id, rank, &config));
  }
  NCCL_OK(ncclGroupEnd());
}

void issue_and_compare(int max_ctas) {
  const std::vector<int> devices = gpu_testing::devices_of_ranks();
  const auto ranks = static_cast<int>(devices.size());
  std::vector<ncclComm_t> comms;
  ASSERT_NO_FATAL_FAILURE(make_communicators(devices, max_ctas, comms));
  const char* const text = std::getenv("LARGE_SECONDS");
  const auto end = Clock::now() + std::chrono::duration<double>(text == nullptr ? 5 : std::atof(text));

  std::barrier together(ranks);
  std::atomic<bool> enough{false};
  std::atomic<uint32_t> turns{0};
  const auto run = [&](int rank) {
    ASSERT_EQ(cudaSetDevice(devices[rank]), cudaSuccess);
    Rank mine(rank, ranks, comms[rank]);
    mine.set_up();
    std::mt19937 random(4711);
    while (!enough) {
      const Style style = draw_style(random);
      const std::vector<Operation> round = draw_round(random, ranks);
      // Ranks that share a GPU must not copy, allocate or make graphs while one's kernel waits for another's.
      together.arrive_and_wait();
      if (style.in_graphs) mine.make_graphs(round, style);
      together.arrive_and_wait();
      for (size_t i = 0; i < round.size(); ++i) {
        mine.issue(round[i], style, i);
        if (style.together) {
          mine.synchronize();
          together.arrive_and_wait();
        }
      }
      mine.synchronize();
      EXPECT_EQ(mine.async_error(), ncclSuccess);
      together.arrive_and_wait();
      mine.expect_nothing_found(round, style);
      mine.drop_graphs();
      if (rank == 0) {
        turns += round.size();
        enough = ::testing::Test::HasFailure() || Clock::now() > end;
      }
      together.arrive_and_wait();
    }
    mine.tear_down();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  std::printf("%u operations\n", turns.load());
}

TEST(Large, OperationsGiveTheSameEveryTime) {
  REQUIRE_GPU();
  issue_and_compare(NCCL_CONFIG_UNDEF_INT);
}

TEST(Large, OperationsOfFewCtasGiveTheSameEveryTime) {
  REQUIRE_GPU();
  issue_and_compare(24);
}

// Large operations of three ranks have CTAs on all multiprocessors of the GPU, and wait for the fourth.
TEST(Large, OperationsLeaveRoomForSmallOnesOfTheRankThatTheyWaitFor) {
  REQUIRE_GPU();
  constexpr int kRanks = 4;
  const std::vector<int> devices(kRanks, 0);
  std::vector<ncclComm_t> comms(kRanks);
  NCCL_OK(ncclCommInitAll(comms.data(), kRanks, devices.data()));
  CUDA_OK(cudaSetDevice(0));
  std::vector<Rank> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(rank, kRanks, comms[rank]).set_up();
  for (size_t what = 0; what < kNames.size() && !HasFailure(); ++what) {
    Operation one{};
    one.what = static_cast<What>(what);
    one.count = kMost / gpu_testing::most_blocks(one.what, kRanks);
    one.root = kRanks - 1;
    for (const bool late : {false, true}) {  // first all at once, which makes ready what is needed
      NCCL_OK(ncclGroupStart());
      for (int rank = 0; rank < kRanks - (late ? 1 : 0); ++rank) ranks[rank].issue_small(one.root);
      for (int rank = 0; rank < kRanks - (late ? 1 : 0); ++rank) ranks[rank].issue_alone(one);
      NCCL_OK(ncclGroupEnd());
      if (late) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ranks.back().issue_small(one.root);
        ranks.back().issue_alone(one);
      }
      for (Rank& rank : ranks) {
        rank.synchronize();
        EXPECT_EQ(rank.async_error(), ncclSuccess) << kNames[what];
      }
    }
  }
  for (Rank& rank : ranks) rank.tear_down();
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

}  // namespace
