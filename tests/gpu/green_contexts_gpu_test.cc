// Communicators whose ranks call in streams of green contexts: with a few of a GPU's multiprocessors each.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "communicator_ranks.h"
#include "green_contexts.h"

namespace {

using namespace nitinol::gpu_testing;

class InGreenContexts : public Ranks {
 protected:
  static constexpr unsigned kMultiprocessors = 8;

  void make_in_parts(int ranks) {
    make(ranks);
    if (IsSkipped()) return;
    const auto of_a_gpu = static_cast<unsigned>((ranks + gpus() - 1) / gpus());
    if (!GreenContexts::there_are(0, of_a_gpu, kMultiprocessors)) GTEST_SKIP() << "too few green contexts here";
    for (int device = 0; device < std::min(gpus(), ranks); ++device) {
      CUDA_OK(cudaSetDevice(device));
      contexts_.push_back(std::make_unique<GreenContexts>(device, of_a_gpu, kMultiprocessors));
    }
    for (size_t rank = 0; rank < this->ranks(); ++rank) {
      CUDA_OK(cudaStreamDestroy(streams[rank]));
      streams[rank] = contexts_of(rank).make_stream(place_of(rank));
    }
  }
  void enter_context(size_t rank) const { contexts_of(rank).make_current(place_of(rank)); }

  void poison(size_t rank) const {
    CUDA_OK(cudaMemsetAsync(outputs[rank], 0xcd, kBytes, streams[rank]));
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
  }
  void fill_input(size_t rank, size_t count) const {
    std::vector<int> data(count);
    for (size_t i = 0; i < count; ++i) data[i] = value(rank, i);
    CUDA_OK(nitinol::copy_to_device(inputs[rank], data.data(), count * sizeof(int)));
  }
  static int value(size_t rank, size_t i) { return static_cast<int>(i % 1000 * (rank + 1)); }
  void must_have(size_t rank, size_t count, const std::function<int(size_t)>& want) const {
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
    std::vector<int> got(count);
    CUDA_OK(cudaMemcpy(got.data(), outputs[rank], count * sizeof(int), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(got[i], want(i)) << "rank " << rank << ", element " << i;
  }
  int sum(size_t i) const {
    const size_t n = ranks();
    return static_cast<int>(i % 1000 * (n * (n + 1) / 2));
  }
  /// `graph` goes.
  void make_ready(size_t rank, cudaGraph_t graph, cudaGraphExec_t& executable) const {
    instantiate(rank, graph, executable);
    CUDA_OK(cudaGraphDestroy(graph));
  }

 private:
  const GreenContexts& contexts_of(size_t rank) const { return *contexts_[static_cast<size_t>(device(rank))]; }
  static size_t place_of(size_t rank) { return rank / static_cast<size_t>(gpus()); }

  std::vector<std::unique_ptr<GreenContexts>> contexts_;
};

/// The sizes at which operations go by brief kernels, by LL128, and by many CTAs.
constexpr size_t kCounts[] = {100, 60'000, 1'000'003, 8'000'000};
/// Blocks with which an all-to-all of three ranks that share a GPU goes in parts.
constexpr size_t kBlockOfParts = 1'250'000;

TEST_F(InGreenContexts, SumsAreRightAtEverySize) {
  make_in_parts(4);
  if (IsSkipped()) return;
  for (size_t rank = 0; rank < ranks(); ++rank) fill_input(rank, kCounts[3]);
  for (const size_t count : kCounts) {
    each([&](size_t rank) {
      poison(rank);
      all_reduce(rank, count);
      must_have(rank, count, [this](size_t i) { return sum(i); });
    });
  }
}

TEST_F(InGreenContexts, BlocksArriveEagerlyAndFromGraphs) {
  make_in_parts(3);
  if (IsSkipped()) return;
  for (size_t rank = 0; rank < ranks(); ++rank) fill_input(rank, 3 * kBlockOfParts);
  for (const size_t block : {size_t{20}, size_t{20'000}, kBlockOfParts}) {
    const auto received = [&](size_t rank) {
      return [block, rank](size_t i) { return value(i / block, rank * block + i % block); };
    };
    const auto all_to_all = [&](size_t rank) {
      NCCL_OK(ncclAlltoAll(inputs[rank], outputs[rank], block, ncclInt, comms[rank], streams[rank]));
    };
    std::vector<cudaGraphExec_t> executables(ranks());
    each([&](size_t rank) {
      poison(rank);
      all_to_all(rank);
      must_have(rank, block * ranks(), received(rank));
      cudaGraph_t graph = nullptr;
      CUDA_OK(cudaStreamBeginCapture(streams[rank], cudaStreamCaptureModeThreadLocal));
      all_to_all(rank);
      CUDA_OK(cudaStreamEndCapture(streams[rank], &graph));
      make_ready(rank, graph, executables[rank]);
    });
    each([&](size_t rank) {
      for (int round = 0; round < 3; ++round) {
        poison(rank);
        CUDA_OK(cudaGraphLaunch(executables[rank], streams[rank]));
        must_have(rank, block * ranks(), received(rank));
      }
    });
    for (const cudaGraphExec_t executable : executables) CUDA_OK(cudaGraphExecDestroy(executable));
  }
}

TEST_F(InGreenContexts, MessagesOfAGroupArriveAlsoWhereTheThreadIsInTheContext) {
  make_in_parts(2);
  if (IsSkipped()) return;
  constexpr size_t kMost = 5'300'026;
  for (size_t rank = 0; rank < ranks(); ++rank) fill_input(rank, kMost);
  // Longer than slots hold; and of several sizes, of which the last one goes by another protocol.
  const std::vector<std::vector<size_t>> groups = {{25, 3'500'000}, {25, 300'001, 5'000'000}};
  for (const bool enters : {false, true}) {
    for (const std::vector<size_t>& counts : groups) {
      each([&](size_t rank) {
        if (enters) enter_context(rank);
        poison(rank);
        const int peer = 1 - static_cast<int>(rank);
        NCCL_OK(ncclGroupStart());
        size_t at = 0;
        for (const size_t count : counts) {
          NCCL_OK(ncclSend(inputs[rank] + at, count, ncclInt, peer, comms[rank], streams[rank]));
          NCCL_OK(ncclRecv(outputs[rank] + at, count, ncclInt, peer, comms[rank], streams[rank]));
          at += count;
        }
        NCCL_OK(ncclGroupEnd());
        must_have(rank, at, [&](size_t i) { return value(static_cast<size_t>(peer), i); });
      });
    }
  }
}

/// Where the thread is in the context from the first call on all that the library makes then is, too.
TEST_F(InGreenContexts, GraphsAreReplayedBesideEagerCalls) {
  make_in_parts(3);
  if (IsSkipped()) return;
  constexpr size_t kCount = 2'000'000;
  for (size_t rank = 0; rank < ranks(); ++rank) fill_input(rank, kCount);
  std::vector<cudaGraphExec_t> executables(ranks());
  each([&](size_t rank) {
    enter_context(rank);
    all_reduce(rank, kCount);  // loads and connects
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
    cudaGraph_t graph = nullptr;
    capture_three(rank, kCount, graph);
    make_ready(rank, graph, executables[rank]);
  });
  for (int round = 0; round < 3; ++round) {
    each([&](size_t rank) {
      poison(rank);
      CUDA_OK(cudaGraphLaunch(executables[rank], streams[rank]));
      must_have(rank, kCount, [this](size_t i) { return sum(i); });
      poison(rank);
      all_reduce(rank, kCount);
      must_have(rank, kCount, [this](size_t i) { return sum(i); });
    });
  }
  for (const cudaGraphExec_t executable : executables) CUDA_OK(cudaGraphExecDestroy(executable));
}

}  // namespace
