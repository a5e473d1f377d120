// Random batches of operations through the public calls for a while (SOAK_SECONDS, 5 if not set): all collectives and
// messages, sizes from one element to the largest that run in parts, one by one or in a group, over two streams, eager
// and in graphs, of which some are kept and launched again later. Every element of every output is compared.
// Graphs are uploaded before their first launch, as ranks that share a GPU must (docs/design.md); SOAK_UPLOAD=0: not.
// SOAK_ONLY=messages: groups of sends and receives alone, every other one of any size.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
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

/// One operation, the same on every rank, on integers or on floats that hold such: every order of adding gives the
/// same.
struct Operation : gpu_testing::Operation {
  size_t stream = 0;
};

/// Operations that run together. Each has a part of the output buffer to itself.
struct Batch {
  std::vector<Operation> operations;
  bool grouped = false;
  bool in_graph = false;
};

constexpr size_t kMostOperations = 4;
constexpr size_t kLargest = size_t{24} << 20;  ///< elements of the larger buffer of an operation: 96 MB
constexpr size_t kStreams = 2;
constexpr size_t kGraphsKept = 6;

bool uploads() {
  const char* const text = std::getenv("SOAK_UPLOAD");
  return text == nullptr || std::strcmp(text, "0") != 0;
}

bool messages_alone() {
  const char* const only = std::getenv("SOAK_ONLY");
  return only != nullptr && std::strcmp(only, "messages") == 0;
}

/// Small ones mostly, as they are many; one in 32 may be of any size.
size_t draw_count(std::mt19937& random, size_t most) {
  const uint32_t one_in = messages_alone() ? 2 : 32;
  const size_t limit = random() % one_in == 0 ? most : std::min(most, size_t{1} << random() % 19);
  return 1 + random() % limit;
}

Batch draw(std::mt19937& random, size_t ranks) {
  Batch batch;
  batch.grouped = random() % 3 == 0 || messages_alone();
  batch.in_graph = random() % 3 == 0;
  const size_t operations = 1 + random() % kMostOperations;
  for (size_t i = 0; i < operations; ++i) {
    Operation one;
    one.what = messages_alone() ? What::kNext : static_cast<What>(random() % gpu_testing::kKinds);
    one.count = draw_count(random, kLargest / gpu_testing::most_blocks(one.what, ranks));
    one.root = static_cast<int>(random() % ranks);
    one.type = random() % 2 == 0 ? ncclFloat : ncclInt;
    one.reduction = ncclMax;
    one.stream = batch.in_graph || batch.grouped ? 0 : random() % kStreams;
    batch.operations.push_back(one);
  }
  return batch;
}

/// As it lies in memory.
int bits_of(const Operation& one, int number) {
  return one.type == ncclFloat ? std::bit_cast<int>(static_cast<float>(number)) : number;
}

int value(int rank, size_t i) { return static_cast<int>(i % 1000) + 3 * rank; }

void print(const Batch& batch, size_t number, int repeats) {
  std::printf("batch %zu%s%s, %d times:", number, batch.grouped ? ", in a group" : "",
              batch.in_graph ? ", in a graph" : "", repeats);
  for (const Operation& one : batch.operations) {
    std::printf(" {operation %d, count %zu%s, root %d, stream %zu}", static_cast<int>(one.what), one.count,
                one.type == ncclFloat ? " floats" : "", one.root, one.stream);
  }
  std::printf("\n");
}

size_t output_count(const Operation& one, int rank, int ranks) {
  if (one.what == What::kReduce && rank != one.root) return 0;
  return one.count * gpu_testing::output_blocks(one.what, static_cast<size_t>(ranks));
}

/// One rank with its buffers. Its graphs may be launched again.
class Rank {
 public:
  Rank(int rank, int ranks, ncclComm_t comm) : rank_(rank), ranks_(ranks), comm_(comm) {}

  void set_up() {
    CUDA_OK(cudaMalloc(&integers_, kLargest * sizeof(int)));
    CUDA_OK(cudaMalloc(&floats_, kLargest * sizeof(float)));
    CUDA_OK(cudaMalloc(&output_, kMostOperations * kPart * sizeof(int)));
    for (cudaStream_t& stream : streams_) CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::vector<int> data(kLargest);
    for (size_t i = 0; i < data.size(); ++i) data[i] = value(rank_, i);
    CUDA_OK(nitinol::copy_to_device(integers_, data.data(), data.size() * sizeof(int)));
    const std::vector<float> same(data.begin(), data.end());
    CUDA_OK(nitinol::copy_to_device(floats_, same.data(), same.size() * sizeof(float)));
    NCCL_OK(nitinolCommSetTimeout(comm_, 30));  // after a failure the others are not to wait for ever
  }
  void tear_down() {
    for (const Kept& kept : graphs_) EXPECT_EQ(cudaGraphExecDestroy(kept.graph), cudaSuccess);
    for (const cudaStream_t stream : streams_) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(cudaFree(integers_), cudaSuccess);
    EXPECT_EQ(cudaFree(floats_), cudaSuccess);
    EXPECT_EQ(cudaFree(output_), cudaSuccess);
  }

  /// Poisons what the batch writes to.
  void poison(const Batch& batch) {
    for (size_t i = 0; i < batch.operations.size(); ++i) {
      const size_t count = output_count(batch.operations[i], rank_, ranks_) + kGuard;
      CUDA_OK(cudaMemset(part(i), 0xee, count * sizeof(int)));
    }
    CUDA_OK(cudaDeviceSynchronize());
  }
  void capture(const Batch& batch) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t instance = nullptr;
    CUDA_OK(cudaStreamBeginCapture(streams_[0], cudaStreamCaptureModeThreadLocal));
    issue(batch);
    CUDA_OK(cudaStreamEndCapture(streams_[0], &graph));
    CUDA_OK(cudaGraphInstantiate(&instance, graph, 0));
    CUDA_OK(cudaGraphDestroy(graph));
    if (uploads()) {
      CUDA_OK(cudaGraphUpload(instance, streams_[0]));
      CUDA_OK(cudaStreamSynchronize(streams_[0]));
    }
    graphs_.push_back({batch, instance});
  }
  void launch(const Batch& batch) {
    if (batch.in_graph) {
      CUDA_OK(cudaGraphLaunch(graphs_.back().graph, streams_[0]));
    } else {
      issue(batch);
    }
  }
  /// Makes the oldest graph the newest; its batch.
  const Batch& turn_to_oldest() {
    graphs_.push_back(graphs_.front());
    graphs_.pop_front();
    return graphs_.back().batch;
  }
  size_t graphs() const { return graphs_.size(); }
  void drop_oldest() {
    CUDA_OK(cudaGraphExecDestroy(graphs_.front().graph));
    graphs_.pop_front();
  }

  void synchronize() {
    for (const cudaStream_t stream : streams_) CUDA_OK(cudaStreamSynchronize(stream));
    ncclResult_t error = ncclSuccess;
    NCCL_OK(ncclCommGetAsyncError(comm_, &error));
    ASSERT_EQ(error, ncclSuccess) << ncclGetLastError(comm_);
  }
  void check(const Batch& batch, size_t number) {
    for (size_t i = 0; i < batch.operations.size(); ++i) check(batch, number, i);
  }

 private:
  static constexpr size_t kGuard = 1;
  static constexpr size_t kPart = kLargest + 64;
  struct Kept {
    Batch batch;
    cudaGraphExec_t graph;
  };

  int* part(size_t index) const { return output_ + index * kPart; }

  void issue(const Batch& batch) {
    if (batch.grouped) {
      NCCL_OK(ncclGroupStart());
    }
    for (size_t i = 0; i < batch.operations.size(); ++i) NCCL_OK(call(batch.operations[i], part(i)));
    if (batch.grouped) {
      NCCL_OK(ncclGroupEnd());
    }
  }
  ncclResult_t call(const Operation& one, int* out) {
    const void* const in = one.type == ncclFloat ? static_cast<const void*>(floats_) : integers_;
    return gpu_testing::call(one, in, out, rank_, ranks_, comm_, streams_[one.stream]);
  }

  void check(const Batch& batch, size_t number, size_t index) {
    const Operation& one = batch.operations[index];
    const size_t count = output_count(one, rank_, ranks_);
    std::vector<int> got(count + kGuard);
    CUDA_OK(cudaMemcpy(got.data(), part(index), got.size() * sizeof(int), cudaMemcpyDeviceToHost));
    ASSERT_EQ(got.back(), static_cast<int>(0xeeeeeeee)) << "beyond the end";
    for (size_t i = 0; i < count; ++i) {
      const int wanted = bits_of(one, gpu_testing::expected(one, rank_, ranks_, i, value));
      if (got[i] == wanted) continue;
      FAIL() << "batch " << number << ", operation " << static_cast<int>(one.what) << " (" << index + 1 << " of "
             << batch.operations.size() << ") of " << one.count << " root " << one.root << ": element " << i
             << " on rank " << rank_ << " is " << got[i] << ", not " << wanted
             << (one.type == ncclFloat ? " (floats)" : "") << (batch.grouped ? ", in a group" : "")
             << (batch.in_graph ? ", in a graph" : "");
    }
  }

  int rank_;
  int ranks_;
  ncclComm_t comm_;
  int* integers_ = nullptr;
  float* floats_ = nullptr;
  int* output_ = nullptr;
  cudaStream_t streams_[kStreams] = {};
  std::deque<Kept> graphs_;
};

TEST(Soak, RandomBatchesGiveWhatTheyMust) {
  if (gpus() == 0) GTEST_SKIP() << "no GPU here";
  const std::vector<int> devices = gpu_testing::devices_of_ranks();
  const size_t ranks = devices.size();
  std::vector<ncclComm_t> comms(ranks);
  NCCL_OK(ncclCommInitAll(comms.data(), static_cast<int>(ranks), devices.data()));
  const char* const text = std::getenv("SOAK_SECONDS");
  const auto end = Clock::now() + std::chrono::duration<double>(text == nullptr ? 5 : std::atof(text));

  // Ranks that share a GPU must not copy, allocate or make graphs while one's kernel waits for another's.
  std::barrier together(static_cast<std::ptrdiff_t>(ranks));
  std::atomic<bool> enough{false};
  std::atomic<size_t> batches{0};
  const auto run = [&](size_t rank) {
    ASSERT_EQ(cudaSetDevice(devices[rank]), cudaSuccess);
    Rank mine(static_cast<int>(rank), static_cast<int>(ranks), comms[rank]);
    mine.set_up();
    std::mt19937 random(4711);
    while (!enough) {
      const bool again = mine.graphs() > 0 && random() % 4 == 0;
      const Batch batch = again ? mine.turn_to_oldest() : draw(random, ranks);
      mine.poison(batch);
      together.arrive_and_wait();  // who waits for a device breaks others' captures on it
      if (batch.in_graph && !again) mine.capture(batch);
      together.arrive_and_wait();
      const int repeats = 1 + static_cast<int>(random() % 3);
      for (int i = 0; i < repeats; ++i) mine.launch(batch);
      mine.synchronize();
      together.arrive_and_wait();
      mine.check(batch, batches);
      if (mine.graphs() > kGraphsKept) mine.drop_oldest();
      if (rank == 0) {
        if (::testing::Test::HasFailure()) print(batch, batches, repeats);
        ++batches;
        enough = ::testing::Test::HasFailure() || Clock::now() > end;
      }
      together.arrive_and_wait();
    }
    mine.tear_down();
  };
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  for (const ncclComm_t comm : comms) EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  std::printf("%zu batches\n", batches.load());
}

}  // namespace
