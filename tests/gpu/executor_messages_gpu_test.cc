// Messages between ranks by the CUDA executor: they arrive, whatever their sizes and however the two ends group them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <random>
#include <tuple>

#include "cluster.h"
#include "messages.h"

namespace nitinol::gpu_testing {

namespace {

class MessagesOverRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MessagesOverRanks, testing::Values(1, 2, 3, 4, 8), testing::PrintToStringParamName());

void must_arrive_in_groups(Cluster& cluster) {
  const int n = cluster.ranks().size();
  const std::pair<int, size_t> shapes[] = {{1, 1},     {3, 1000},  {300 / (n * n) + 1, 500},
                                           {1, 40000}, {2, 10001}, {1, 500000}};
  for (const auto& [per_pair, base] : shapes) {
    std::map<char*, Bytes> expected;
    const std::vector<Launch> launches = message_launches(cluster, per_pair, base, expected);
    for (int repeat = 0; repeat < 2; ++repeat) {
      for (int rank = 0; rank < n; ++rank) {
        const DeviceGuard on(cluster.ranks().device(rank));
        cuda_check(cudaMemset(cluster.output(rank), kPoison, 32 << 20), "cudaMemset");
        cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      }
      exchange(cluster, launches, expected);
      if (testing::Test::HasFatalFailure()) FAIL() << per_pair << " messages per pair of " << base << " bytes and more";
    }
  }
}

TEST_P(MessagesOverRanks, OfAGroupArrive) {
  REQUIRE_GPU();
  Cluster cluster(GetParam());
  must_arrive_in_groups(cluster);
}

TEST_P(MessagesOverRanks, OfAGroupArriveByFewCtas) {
  REQUIRE_GPU();
  for (const int ctas : {1, 3, 16}) {
    Cluster cluster(GetParam(), {.max_channels = ctas});
    must_arrive_in_groups(cluster);
    if (testing::Test::HasFatalFailure()) FAIL() << "with " << ctas << " CTAs";
  }
}

TEST(Messages, OfAllSizesArriveInOneGroup) {
  REQUIRE_GPU();
  Cluster cluster(2);
  std::mt19937 random(7);
  std::vector<Launch> launches(2);
  std::map<char*, Bytes> expected;
  for (int from = 0; from < 2; ++from) {
    size_t at = 0;
    for (const size_t bytes : {size_t{100}, (size_t{17} << 20) + 5, size_t{300'001}}) {
      Bytes data = random_elements(DataType::kUint8, bytes, false, random);
      cuda_check(copy_to_device(cluster.input(from) + at, data.data(), bytes), "cudaMemcpy");
      const auto send = MessageWork::Direction::kSend;
      const auto receive = MessageWork::Direction::kReceive;
      launches[static_cast<size_t>(from)].messages.push_back({send, 1 - from, cluster.input(from) + at, bytes});
      launches[static_cast<size_t>(1 - from)].messages.push_back({receive, from, cluster.output(1 - from) + at, bytes});
      expected[cluster.output(1 - from) + at] = std::move(data);
      at += bytes;
    }
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    exchange(cluster, launches, expected);
  }
}

class MessagesOneByOne : public testing::TestWithParam<std::tuple<bool, int>> {};
INSTANTIATE_TEST_SUITE_P(Messages, MessagesOneByOne, testing::Combine(testing::Bool(), testing::Values(0, 1, 5)));

// Of one protocol in their order; those of different ones in any.
TEST_P(MessagesOneByOne, MeetThoseOfAPeersGroup) {
  REQUIRE_GPU();
  std::mt19937 random(11);
  const auto [first_sends, ctas] = GetParam();
  Cluster cluster(2, {.max_channels = ctas});
  const int from = first_sends ? 0 : 1;
  std::vector<Launch> one_by_one;  // of rank 0, the longest message first
  Launch group;                    // of rank 1
  std::map<char*, Bytes> expected;
  size_t at = 0;
  for (const size_t bytes : {(size_t{20} << 20) + 5, size_t{8} << 20, size_t{2} << 20, size_t{100}}) {
    Bytes data = random_elements(DataType::kUint8, bytes, false, random);
    cuda_check(copy_to_device(cluster.input(from) + at, data.data(), bytes), "cudaMemcpy");
    const MessageWork send{MessageWork::Direction::kSend, 1 - from, cluster.input(from) + at, bytes};
    const MessageWork receive{MessageWork::Direction::kReceive, from, cluster.output(1 - from) + at, bytes};
    one_by_one.push_back(Launch{.collectives = {}, .messages = {first_sends ? send : receive}});
    group.messages.push_back(first_sends ? receive : send);
    expected[cluster.output(1 - from) + at] = std::move(data);
    at += (bytes + 127) / 128 * 128;
  }
  Ranks& ranks = cluster.ranks();
  for (int rank = 0; rank < 2; ++rank) ranks.executor(rank).set_timeout(std::chrono::seconds(10));
  for (const Launch& launch : one_by_one) ranks.executor(0).prepare(launch);
  ranks.executor(1).prepare(group);
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const Launch& launch : one_by_one) ranks.executor(0).launch(launch, ranks.stream(0));
    ranks.executor(1).launch(group, ranks.stream(1));
    ranks.synchronize();
    expect_arrived(expected);
  }
}

TEST(Messages, WithoutPeerAccessGoThroughHostMemory) {
  REQUIRE_GPU();
  Cluster cluster(3, {.peer_access = false});
  for (const auto& [per_pair, base] : {std::pair<int, size_t>{5, 1000}, {2, 200001}}) {
    std::map<char*, Bytes> expected;
    const std::vector<Launch> launches = message_launches(cluster, per_pair, base, expected);
    for (int repeat = 0; repeat < 5; ++repeat) {
      exchange(cluster, launches, expected);
    }
  }
}

}  // namespace

}  // namespace nitinol::gpu_testing
