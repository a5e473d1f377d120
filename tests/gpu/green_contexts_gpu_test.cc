// Communicators whose ranks call in streams of green contexts: with a few of a GPU's multiprocessors each.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

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
    for (int device = 0; device < std::min(gpus(), ranks); ++device) {
      CUDA_OK(cudaSetDevice(device));
      contexts_.push_back(std::make_unique<GreenContexts>(device, of_a_gpu, kMultiprocessors));
    }
    for (size_t rank = 0; rank < this->ranks(); ++rank) {
      CUDA_OK(cudaStreamDestroy(streams[rank]));
      const size_t place = rank / static_cast<size_t>(gpus());
      streams[rank] = contexts_[static_cast<size_t>(device(rank))]->make_stream(place);
    }
  }
  ~InGreenContexts() override = default;

  void poison(size_t rank) const {
    CUDA_OK(cudaMemsetAsync(outputs[rank], 0xcd, kBytes, streams[rank]));
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
  }
  void fill_input(size_t rank, size_t count) const {
    std::vector<int> data(count);
    for (size_t i = 0; i < count; ++i) data[i] = value(rank, i);
    CUDA_OK(cudaMemcpy(inputs[rank], data.data(), count * sizeof(int), cudaMemcpyHostToDevice));
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
  void all_reduce(size_t rank, size_t count) const {
    NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], count, ncclInt, ncclSum, comms[rank], streams[rank]));
  }

 private:
  std::vector<std::unique_ptr<GreenContexts>> contexts_;
};

constexpr size_t kCounts[] = {100, 60'000, 1'000'003, 8'000'000};

TEST_F(InGreenContexts, SumsAndBlocksAreRightAtEverySize) {
  make_in_parts(4);
  if (IsSkipped()) return;
  for (size_t rank = 0; rank < ranks(); ++rank) fill_input(rank, kCounts[3]);
  for (const size_t count : kCounts) {
    each([&](size_t rank) {
      poison(rank);
      all_reduce(rank, count);
      must_have(rank, count, [this](size_t i) { return sum(i); });
    });
    const size_t block = count / ranks();
    each([&](size_t rank) {
      poison(rank);
      NCCL_OK(ncclAlltoAll(inputs[rank], outputs[rank], block, ncclInt, comms[rank], streams[rank]));
      must_have(rank, block * ranks(), [&](size_t i) { return value(i / block, rank * block + i % block); });
    });
  }
}

TEST_F(InGreenContexts, MessagesOfAllSizesArriveInOneGroup) {
  make_in_parts(2);
  if (IsSkipped()) return;
  constexpr size_t kMessages[] = {25, 300'001, 5'000'000};  // the last one goes by another protocol
  for (size_t rank = 0; rank < ranks(); ++rank) fill_input(rank, 5'300'026);
  each([&](size_t rank) {
    poison(rank);
    const int peer = 1 - static_cast<int>(rank);
    NCCL_OK(ncclGroupStart());
    size_t at = 0;
    for (const size_t count : kMessages) {
      NCCL_OK(ncclSend(inputs[rank] + at, count, ncclInt, peer, comms[rank], streams[rank]));
      NCCL_OK(ncclRecv(outputs[rank] + at, count, ncclInt, peer, comms[rank], streams[rank]));
      at += count;
    }
    NCCL_OK(ncclGroupEnd());
    must_have(rank, at, [&](size_t i) { return value(static_cast<size_t>(peer), i); });
  });
}

TEST_F(InGreenContexts, GraphsAreReplayedBesideEagerCalls) {
  make_in_parts(3);
  if (IsSkipped()) return;
  constexpr size_t kCount = 2'000'000;
  for (size_t rank = 0; rank < ranks(); ++rank) fill_input(rank, kCount);
  std::vector<cudaGraphExec_t> executables(ranks());
  each([&](size_t rank) {
    all_reduce(rank, kCount);  // loads and connects
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
    cudaGraph_t graph = nullptr;
    capture_three(rank, kCount, graph);
    CUDA_OK(cudaGraphInstantiate(&executables[rank], graph, 0));
    CUDA_OK(cudaGraphUpload(executables[rank], streams[rank]));
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
    CUDA_OK(cudaGraphDestroy(graph));
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
