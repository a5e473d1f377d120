// The CUDA executor: every algorithm with every protocol gives exactly the expected bits, at any size and alignment, in
// place, eagerly and from graphs; messages arrive; abort ends kernels that wait for a rank which never comes.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <map>

#include "cluster.h"
#include "executor/cuda/kernels.h"

namespace nitinol::gpu_testing {

namespace {

// Kernels of several ranks on one GPU must not stand in line behind each other.
[[maybe_unused]] const int kConnections = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

#define REQUIRE_GPU() \
  if (gpus() == 0) GTEST_SKIP() << "no GPU here"

class OverRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OverRanks, testing::Values(1, 2, 3, 4, 8), testing::PrintToStringParamName());

TEST_P(OverRanks, EveryAlgorithmGivesExactlyTheExpectedBitsAtEverySize) {
  REQUIRE_GPU();
  Cluster cluster(GetParam());
  const Limits limits = cluster.ranks().limits();
  for_each_algorithm(limits, [&](CollectiveWork work) {
    if (testing::Test::HasFailure()) return;
    work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
    int turn = 0;
    for (const size_t count : {1UL, 3UL, 17UL, 1000UL, 4099UL, 40000UL, 300001UL}) {
      Case test{.work = work};
      test.work.count = count;
      test.work.root = turn % GetParam();
      test.work.plan.channels = std::min(limits.channels, 1 + turn % 5);
      test.work.plan.chunk = turn % 3 == 1 ? 256 : 0;
      test.misaligned = turn % 2 == 1 ? 1 : 0;
      ++turn;
      const std::string wrong = cluster.run(test);
      ASSERT_EQ(wrong, "") << describe(test, GetParam());
    }
  });
}

TEST_P(OverRanks, AllTypesAndReductionsGiveTheBitsOfTheRules) {
  REQUIRE_GPU();
  Cluster cluster(GetParam());
  for_each_algorithm(cluster.ranks().limits(), [&](CollectiveWork work) {
    if (!reduces(work.what)) return;
    for (int type = 0; type < kDataTypes; ++type) {
      for (int combine = 0; combine < kCombines; ++combine) {
        if (!built(static_cast<DataType>(type), static_cast<Combine>(combine))) continue;
        if (work.plan.apart && static_cast<Combine>(combine) != Combine::kSum) continue;  // sums alone are built so
        Case test{.work = work};
        test.work.type = static_cast<DataType>(type);
        test.work.reduction.combine = static_cast<Combine>(combine);
        if (work.plan.algorithm != Algorithm::kOneShot && work.plan.algorithm != Algorithm::kTwoShot &&
            combine == static_cast<int>(Combine::kProduct) && is_float(test.work.type)) {
          continue;  // no set of numbers whose products are exact in every order
        }
        test.work.count = 2501;
        test.work.plan.channels = 2;
        test.misaligned = static_cast<size_t>(type % 2);
        const std::string wrong = cluster.run(test);
        ASSERT_EQ(wrong, "") << describe(test, GetParam());
      }
    }
  });
}

TEST_P(OverRanks, AveragesAndScalarsApply) {
  REQUIRE_GPU();
  Cluster cluster(GetParam());
  for_each_algorithm(cluster.ranks().limits(), [&](CollectiveWork work) {
    if (!reduces(work.what) || !algorithm::canonical(work.what, work.plan.algorithm)) return;
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kInt32, DataType::kInt8}) {
      if (!built(type, Combine::kSum)) continue;
      Case test{.work = work};
      test.work.type = type;
      test.work.count = 1501;
      test.work.plan.channels = 2;
      test.work.reduction.average = true;
      ASSERT_EQ(cluster.run(test), "") << "average: " << describe(test, GetParam());
      test.work.reduction.average = false;
      test.work.reduction.scalar = Reduction::Scalar::kImmediate;
      test.work.reduction.immediate = type == DataType::kFloat32 ? 0x3fc00000 : 0x3f;
      ASSERT_EQ(cluster.run(test), "") << "scalar: " << describe(test, GetParam());
    }
  });
}

TEST_P(OverRanks, OperationsWorkInPlace) {
  REQUIRE_GPU();
  Cluster cluster(GetParam());
  for_each_algorithm(cluster.ranks().limits(), [&](CollectiveWork work) {
    if (work.what != Collective::kAllReduce && work.what != Collective::kReduceScatter &&
        work.what != Collective::kAllGather) {
      return;
    }
    work.type = reduces(work.what) ? DataType::kBfloat16 : DataType::kUint8;
    for (const size_t count : {7UL, 2048UL, 100000UL}) {
      Case test{.work = work, .in_place = true};
      test.work.count = count;
      test.work.plan.channels = 3;
      const std::string wrong = cluster.run(test);
      ASSERT_EQ(wrong, "") << describe(test, GetParam());
    }
  });
}

TEST_P(OverRanks, LargeBuffersGoThroughManyRounds) {
  REQUIRE_GPU();
  Cluster cluster(GetParam());
  const Limits limits = cluster.ranks().limits();
  for_each_algorithm(limits, [&](CollectiveWork work) {
    work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
    Case test{.work = work};
    const bool many_blocks = input_blocks(work.what, 2, true) > 1 || output_blocks(work.what, 2, true) > 1;
    test.work.count = many_blocks ? 500009 : 3000011;
    if (reduces(work.what)) test.work.count /= 2;
    test.work.plan.channels = limits.channels;
    const std::string wrong = cluster.run(test);
    ASSERT_EQ(wrong, "") << describe(test, GetParam());
  });
}

TEST_P(OverRanks, GroupsOfCollectivesShareALaunch) {
  REQUIRE_GPU();
  const int n = GetParam();
  Cluster cluster(n);
  constexpr size_t kCount = 1000;
  constexpr int kWorks = 40;
  std::vector<Launch> launches(static_cast<size_t>(n));
  std::vector<std::vector<Bytes>> inputs(kWorks);
  std::mt19937 random(7);
  for (int rank = 0; rank < n; ++rank) {
    for (int i = 0; i < kWorks; ++i) {
      const size_t at = static_cast<size_t>(i) * kCount * 4;
      inputs[static_cast<size_t>(i)].push_back(random_elements(DataType::kFloat32, kCount, false, random));
      cuda_check(cudaMemcpy(cluster.input(rank) + at, inputs[static_cast<size_t>(i)].back().data(), kCount * 4,
                            cudaMemcpyHostToDevice),
                 "cudaMemcpy");
      CollectiveWork work;
      work.type = DataType::kFloat32;
      work.count = kCount;
      work.input = cluster.input(rank) + at;
      work.output = cluster.output(rank) + at;
      work.plan.channels = 1 + i % 3;
      work.plan.protocol = i % 7 == 0 ? Protocol::kSimple : Protocol::kLL;
      launches[static_cast<size_t>(rank)].collectives.push_back(work);
    }
  }
  cluster.ranks().prepare(launches);
  cluster.ranks().launch(launches);
  cluster.ranks().synchronize();
  for (int rank = 0; rank < n; ++rank) {
    for (int i = 0; i < kWorks; ++i) {
      const CollectiveWork& work = launches[static_cast<size_t>(rank)].collectives[static_cast<size_t>(i)];
      Bytes got(kCount * 4);
      cuda_check(cudaMemcpy(got.data(), work.output, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
      ASSERT_EQ(got, expected_output(work, rank, inputs[static_cast<size_t>(i)])) << "work " << i << " rank " << rank;
    }
  }
}

/// Collectives that run in parts use connections differently, but come one after the other all the same.
TEST_P(OverRanks, GroupsOfLargeCollectivesRunInPartsOneByOne) {
  REQUIRE_GPU();
  const int n = GetParam();
  Cluster cluster(n);
  const Limits limits = cluster.ranks().limits();
  std::vector<CollectiveWork> works;
  for (int turn = 0; turn < 3; ++turn) {
    for_each_algorithm(limits, [&](CollectiveWork work) {
      if (!work.plan.apart) return;
      work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
      work.count = 5000 + 16 * works.size();
      work.root = turn % n;
      work.plan.channels = 1 + turn;
      work.plan.chunk = 256;  // many times as many as there are slots
      works.push_back(work);
    });
  }
  std::mt19937 random(11);
  const size_t room = size_t{5000 + 16 * 32} * 4 * static_cast<size_t>(n);
  std::vector<Launch> launches(static_cast<size_t>(n));
  std::vector<std::vector<Bytes>> inputs(works.size());
  for (size_t i = 0; i < works.size(); ++i) {
    for (int rank = 0; rank < n; ++rank) {
      CollectiveWork work = works[i];
      const size_t blocks = input_blocks(work.what, n, rank == work.root);
      inputs[i].push_back(random_elements(work.type, blocks * work.count, false, random));
      work.input = cluster.input(rank) + i * room;
      work.output = cluster.output(rank) + i * room;
      cuda_check(cudaMemcpy(cluster.input(rank) + i * room, inputs[i].back().data(), inputs[i].back().size(),
                            cudaMemcpyHostToDevice),
                 "cudaMemcpy");
      launches[static_cast<size_t>(rank)].collectives.push_back(work);
    }
  }
  for (int repeat = 0; repeat < 20; ++repeat) {
    for (int rank = 0; rank < n; ++rank) {
      cuda_check(cudaMemset(cluster.output(rank), kPoison, works.size() * room), "cudaMemset");
    }
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    cluster.ranks().prepare(launches);
    cluster.ranks().launch(launches);
    cluster.ranks().synchronize();
    for (size_t i = 0; i < works.size(); ++i) {
      for (int rank = 0; rank < n; ++rank) {
        const Bytes want = expected_output(launches[static_cast<size_t>(rank)].collectives[i], rank, inputs[i]);
        Bytes got(want.size());
        cuda_check(cudaMemcpy(got.data(), cluster.output(rank) + i * room, got.size(), cudaMemcpyDeviceToHost),
                   "cudaMemcpy");
        ASSERT_EQ(got == want, true) << name_of(works[i].what) << ", number " << i << ", rank " << rank;
      }
    }
  }
}

/// Every rank sends `per_pair` messages to every rank, itself included; sizes differ by pair and number.
std::vector<Launch> message_launches(Cluster& cluster, int per_pair, size_t base, std::map<char*, Bytes>& expected) {
  const int n = cluster.ranks().size();
  std::vector<Launch> launches(static_cast<size_t>(n));
  std::vector<size_t> in_at(static_cast<size_t>(n));
  std::vector<size_t> out_at(static_cast<size_t>(n));
  std::mt19937 random(99);
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      for (int k = 0; k < per_pair; ++k) {
        const size_t bytes = base * static_cast<size_t>(1 + (from + 2 * to + k) % 5) + static_cast<size_t>(k);
        const auto f = static_cast<size_t>(from);
        const auto t = static_cast<size_t>(to);
        char* source = cluster.input(from) + in_at[f];
        char* target = cluster.output(to) + out_at[t];
        in_at[f] += bytes + static_cast<size_t>(k % 3);
        out_at[t] += bytes + static_cast<size_t>(k % 2);
        Bytes data = random_elements(DataType::kUint8, bytes, false, random);
        cuda_check(cudaMemcpy(source, data.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
        launches[f].messages.push_back({MessageWork::Direction::kSend, to, source, bytes});
        launches[t].messages.push_back({MessageWork::Direction::kReceive, from, target, bytes});
        expected[target] = std::move(data);
      }
    }
  }
  return launches;
}

void expect_arrived(const std::map<char*, Bytes>& expected) {
  for (const auto& [address, data] : expected) {
    Bytes got(data.size());
    cuda_check(cudaMemcpy(got.data(), address, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    ASSERT_EQ(got == data, true) << data.size() << " bytes";
  }
}

TEST_P(OverRanks, MessagesOfAGroupArrive) {
  REQUIRE_GPU();
  const int n = GetParam();
  Cluster cluster(n);
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
      cluster.ranks().prepare(launches);
      cluster.ranks().launch(launches);
      cluster.ranks().synchronize();
      expect_arrived(expected);
      if (testing::Test::HasFatalFailure()) FAIL() << per_pair << " messages per pair of " << base << " bytes and more";
    }
  }
}

TEST_P(OverRanks, GraphsReplayAndMixWithEagerCalls) {
  REQUIRE_GPU();
  const int n = GetParam();
  Cluster cluster(n);
  for_each_algorithm(cluster.ranks().limits(), [&](CollectiveWork work) {
    if (work.what != Collective::kAllReduce || work.plan.algorithm == Algorithm::kRing ||
        work.plan.algorithm == Algorithm::kTree) {
      return;
    }
    work.type = DataType::kFloat32;
    work.count = 5003;
    work.plan.channels = 2;
    Case test{.work = work};
    const std::vector<Launch> launches = cluster.set_up(test, false);
    std::vector<cudaGraphExec_t> graphs;
    for (int rank = 0; rank < n; ++rank) {
      const cudaStream_t stream = cluster.ranks().stream(rank);
      const DeviceGuard on(cluster.ranks().device(rank));
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t executable = nullptr;
      cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
      for (int i = 0; i < 3; ++i) {
        cluster.ranks().executor(rank).prepare(launches[static_cast<size_t>(rank)]);
        cluster.ranks().executor(rank).launch(launches[static_cast<size_t>(rank)], stream);
      }
      cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
      cuda_check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
      cuda_check(cudaGraphDestroy(graph), "cudaGraphDestroy");
      graphs.push_back(executable);
    }
    for (int round = 0; round < 5; ++round) {
      for (int rank = 0; rank < n; ++rank) {
        const DeviceGuard on(cluster.ranks().device(rank));
        cuda_check(cudaGraphLaunch(graphs[static_cast<size_t>(rank)], cluster.ranks().stream(rank)), "cudaGraphLaunch");
      }
      cluster.ranks().launch(launches);
      cluster.ranks().synchronize();
      ASSERT_EQ(cluster.check(test, launches), "") << describe(test, n);
    }
    for (const cudaGraphExec_t graph : graphs) cuda_check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
  });
}

TEST(CudaExecutor, AbortEndsKernelsThatWaitForARankThatNeverCalls) {
  REQUIRE_GPU();
  for (int protocol = 0; protocol < kProtocols; ++protocol) {
    Cluster cluster(2);
    Case test;
    test.work.type = DataType::kFloat32;
    test.work.count = 100000;
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

TEST(CudaExecutor, WithoutPeerAccessDataGoesThroughHostMemory) {
  REQUIRE_GPU();
  Cluster cluster(3, false);
  for_each_algorithm(cluster.ranks().limits(), [&](CollectiveWork work) {
    work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
    for (const size_t count : {5UL, 30001UL}) {
      Case test{.work = work};
      test.work.count = count;
      test.work.plan.channels = 2;
      ASSERT_EQ(cluster.run(test), "") << describe(test, 3);
      test.work.plan.chunk = 256;  // many times as many as there are slots
      ASSERT_EQ(cluster.run(test), "") << describe(test, 3);
    }
  });
}

TEST(CudaExecutor, MessagesOfAllSizesArriveInOneGroup) {
  REQUIRE_GPU();
  Cluster cluster(2);
  std::mt19937 random(7);
  std::vector<Launch> launches(2);
  std::map<char*, Bytes> expected;
  for (int from = 0; from < 2; ++from) {
    size_t at = 0;
    for (const size_t bytes : {size_t{100}, (size_t{17} << 20) + 5, size_t{300'001}}) {
      Bytes data = random_elements(DataType::kUint8, bytes, false, random);
      cuda_check(cudaMemcpy(cluster.input(from) + at, data.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
      const auto send = MessageWork::Direction::kSend;
      const auto receive = MessageWork::Direction::kReceive;
      launches[static_cast<size_t>(from)].messages.push_back({send, 1 - from, cluster.input(from) + at, bytes});
      launches[static_cast<size_t>(1 - from)].messages.push_back({receive, from, cluster.output(1 - from) + at, bytes});
      expected[cluster.output(1 - from) + at] = std::move(data);
      at += bytes;
    }
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    cluster.ranks().prepare(launches);
    cluster.ranks().launch(launches);
    cluster.ranks().synchronize();
    expect_arrived(expected);
  }
}

TEST(CudaExecutor, MessagesOfAGroupMeetThoseOfAPeerThatMakesThemOneByOneInAnotherOrder) {
  REQUIRE_GPU();
  std::mt19937 random(11);
  for (const bool first_sends : {true, false}) {
    Cluster cluster(2);
    const int from = first_sends ? 0 : 1;
    std::vector<Launch> one_by_one;  // of rank 0, the longest message first
    Launch group;                    // of rank 1
    std::map<char*, Bytes> expected;
    size_t at = 0;
    for (const size_t bytes : {(size_t{20} << 20) + 5, size_t{8} << 20, size_t{100}}) {
      Bytes data = random_elements(DataType::kUint8, bytes, false, random);
      cuda_check(cudaMemcpy(cluster.input(from) + at, data.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
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
}

TEST(CudaExecutor, WithoutPeerAccessMessagesGoThroughHostMemory) {
  REQUIRE_GPU();
  Cluster cluster(3, false);
  for (const auto& [per_pair, base] : {std::pair<int, size_t>{5, 1000}, {2, 200001}}) {
    std::map<char*, Bytes> expected;
    const std::vector<Launch> launches = message_launches(cluster, per_pair, base, expected);
    for (int repeat = 0; repeat < 5; ++repeat) {
      cluster.ranks().prepare(launches);
      cluster.ranks().launch(launches);
      cluster.ranks().synchronize();
      expect_arrived(expected);
    }
  }
}

}  // namespace

}  // namespace nitinol::gpu_testing
