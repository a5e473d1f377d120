// Aborted executors: their kernels end, and ranks that have not heard of it yet never take for data what was not sent.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cluster.h"

namespace nitinol::gpu_testing {

namespace {

TEST(CudaExecutor, AbortEndsKernelsThatWaitForARankThatNeverCalls) {
  REQUIRE_GPU();
  for (int protocol = 0; protocol < kProtocols; ++protocol) {
    for (const size_t count : {1000, 100000}) {
      Cluster cluster(2);
      Case test;
      test.work.type = DataType::kFloat32;
      test.work.count = count;
      test.work.plan.channels = 2;
      test.work.plan.protocol = static_cast<Protocol>(protocol);
      const std::vector<Launch> launches = cluster.set_up(test, false);
      cluster.ranks().prepare(launches);
      cluster.ranks().executor(0).launch(launches[0], cluster.ranks().stream(0));
      EXPECT_EQ(cudaStreamQuery(cluster.ranks().stream(0)), cudaErrorNotReady);
      cluster.ranks().executor(0).abort();
      cluster.ranks().synchronize();
    }
  }
}

// More than it takes until a count to which each adds a quarter of all numbers is where it began.
constexpr int kBehind = 6;

constexpr auto kAWhile = std::chrono::milliseconds(20);  // for kernels to come to where they wait

// Ranks 0 and 1 wait for rank 2, and rank 1 is aborted, with other operations behind the first. Then rank 2 comes.
TEST(CudaExecutor, WhatAnAbortedRankDidNotSendIsNotTakenForData) {
  REQUIRE_GPU();
  const Limits limits = Ranks(3, gpus()).limits();
  for_each_algorithm(3, limits, [&](CollectiveWork work) {
    struct Length {
      size_t count;
      uint32_t chunk;
    };
    for (const auto& [count, chunk] : {Length{100000, 0}, Length{100000, 1024}, Length{1500, 0}}) {
      Cluster cluster(3);
      Case test{.work = work};
      test.work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
      test.work.count = count;
      test.work.root = rooted(work.what) && !reduces(work.what) ? 2 : 0;
      test.work.plan.channels = 2;
      test.work.plan.chunk = chunk;
      const std::vector<Launch> launches = cluster.set_up(test, true);
      Ranks& ranks = cluster.ranks();
      ranks.prepare(launches);
      Launch later = launches[1];
      later.collectives[0].input = static_cast<const char*>(later.collectives[0].input) + 64;

      ranks.executor(0).launch(launches[0], ranks.stream(0));
      ranks.executor(1).launch(launches[1], ranks.stream(1));
      for (int i = 0; i < kBehind; ++i) ranks.executor(1).launch(later, ranks.stream(1));
      std::this_thread::sleep_for(kAWhile);
      ranks.executor(1).abort();
      cuda_check(cudaStreamSynchronize(ranks.stream(1)), "cudaStreamSynchronize");
      ranks.executor(2).launch(launches[2], ranks.stream(2));
      std::this_thread::sleep_for(kAWhile);
      for (const int rank : {0, 2}) ranks.executor(rank).abort();
      ranks.synchronize();
      for (const int rank : {0, 2}) {
        EXPECT_EQ(cluster.check_unfinished(test, launches, rank), "") << describe(test, 3);
      }
    }
  });
}

// Rank 1 sends more than slots hold to rank 0, which does not receive, and is aborted, with more to send.
TEST(CudaExecutor, WhatAnAbortedRankDidNotSendIsNotTakenForMessages) {
  REQUIRE_GPU();
  struct Sizes {
    size_t bytes;
    int messages;
  };
  for (const auto& [bytes, messages] : {Sizes{1024, 300}, Sizes{size_t{64} << 10, 100}, Sizes{size_t{32} << 20, 1}}) {
    Cluster cluster(2);
    Ranks& ranks = cluster.ranks();
    std::mt19937 random(7);
    const size_t total = bytes * static_cast<size_t>(messages);
    const Bytes data = random_elements(DataType::kUint8, total, false, random);
    cuda_check(copy_to_device(cluster.input(1), data.data(), total), "cudaMemcpy");
    cuda_check(set_on_device(cluster.output(0), kPoison, total), "cudaMemset");
    Launch send;
    Launch later;
    Launch receive;
    for (int i = 0; i < messages; ++i) {
      const size_t at = bytes * static_cast<size_t>(i);
      send.messages.push_back({MessageWork::Direction::kSend, 0, cluster.input(1) + at, bytes});
      later.messages.push_back({MessageWork::Direction::kSend, 0, cluster.input(1) + at + 1, bytes});
      receive.messages.push_back({MessageWork::Direction::kReceive, 1, cluster.output(0) + at, bytes});
    }
    ranks.prepare({receive, send});

    ranks.executor(1).launch(send, ranks.stream(1));
    for (int i = 0; i < kBehind; ++i) ranks.executor(1).launch(later, ranks.stream(1));
    std::this_thread::sleep_for(kAWhile);
    ranks.executor(1).abort();
    cuda_check(cudaStreamSynchronize(ranks.stream(1)), "cudaStreamSynchronize");
    ranks.executor(0).launch(receive, ranks.stream(0));
    std::this_thread::sleep_for(kAWhile);
    ranks.executor(0).abort();
    ranks.synchronize();
    Bytes got(total);
    cuda_check(cudaMemcpy(got.data(), cluster.output(0), total, cudaMemcpyDeviceToHost), "cudaMemcpy");
    size_t arrived = 0;
    for (size_t i = 0; i < total; ++i) {
      ASSERT_TRUE(got[i] == data[i] || got[i] == kPoison) << "byte " << i << " of messages of " << bytes;
      arrived += got[i] != kPoison ? 1 : 0;
    }
    EXPECT_GT(arrived, 0U);
  }
}

// Rank 1 waits for what never comes and is aborted; behind that it sends what it should have received, by connections
// that the aborted kernel did not use.
TEST(CudaExecutor, WhatAnAbortedRankWasToPassOnIsNotSent) {
  REQUIRE_GPU();
  constexpr size_t kAwaited = 1024;
  for (const size_t bytes : {size_t{1024}, size_t{256} << 10, size_t{32} << 20}) {
    for (int protocol = 0; protocol <= kProtocols; ++protocol) {  // the last: as messages
      Cluster cluster(2);
      Ranks& ranks = cluster.ranks();
      std::vector<Launch> pass_on(2);
      for (int rank = 0; rank < 2; ++rank) {
        const DeviceGuard on(ranks.device(rank));
        cuda_check(set_on_device(cluster.output(rank), rank == 0 ? kPoison : 1, bytes), "cudaMemset");
        Launch& launch = pass_on[static_cast<size_t>(rank)];
        if (protocol == kProtocols) {
          const auto direction = rank == 1 ? MessageWork::Direction::kSend : MessageWork::Direction::kReceive;
          launch.messages.push_back({direction, 1 - rank, cluster.output(rank), bytes});
        } else {
          CollectiveWork work;
          work.what = Collective::kBroadcast;
          work.root = 1;
          work.count = bytes;
          work.plan.channels = 8;
          work.plan.protocol = static_cast<Protocol>(protocol);
          work.input = work.output = cluster.output(rank);
          launch.collectives.push_back(work);
        }
      }
      Launch receive;
      receive.messages.push_back({MessageWork::Direction::kReceive, 0, cluster.output(1), kAwaited});
      ranks.prepare(pass_on);
      ranks.executor(1).prepare(receive, ranks.stream(1));

      ranks.executor(1).launch(receive, ranks.stream(1));
      for (int i = 0; i < 2; ++i) ranks.executor(1).launch(pass_on[1], ranks.stream(1));
      std::this_thread::sleep_for(kAWhile);
      ranks.executor(1).abort();
      cuda_check(cudaStreamSynchronize(ranks.stream(1)), "cudaStreamSynchronize");
      ranks.executor(0).launch(pass_on[0], ranks.stream(0));
      std::this_thread::sleep_for(kAWhile);
      EXPECT_EQ(cudaStreamQuery(ranks.stream(0)), cudaErrorNotReady) << "nothing came";
      ranks.executor(0).abort();
      ranks.synchronize();
      Bytes got(bytes);
      cuda_check(cudaMemcpy(got.data(), cluster.output(0), bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
      const auto is_poison = [](unsigned char byte) { return byte == kPoison; };
      EXPECT_TRUE(std::all_of(got.begin(), got.end(), is_poison)) << bytes << " bytes, protocol " << protocol;
    }
  }
}

}  // namespace

}  // namespace nitinol::gpu_testing
