// The CUDA executor: every algorithm with every protocol gives exactly the expected bits, at any size and alignment, in
// place, eagerly and from graphs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "cluster.h"

namespace nitinol::gpu_testing {

namespace {

// Kernels of several ranks on one GPU must not stand in line behind each other.
[[maybe_unused]] const int kConnections = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

class OverRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OverRanks, testing::Values(1, 2, 3, 4, 8), testing::PrintToStringParamName());

TEST_P(OverRanks, EveryAlgorithmGivesExactlyTheExpectedBitsAtEverySize) {
  REQUIRE_GPU();
  Cluster cluster(GetParam());
  const Limits limits = cluster.ranks().limits();
  for_each_algorithm(GetParam(), limits, [&](CollectiveWork work) {
    if (testing::Test::HasFailure()) return;
    work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
    int turn = 0;
    for (const size_t count : {1UL, 3UL, 17UL, 1000UL, 4099UL, 40000UL, 300001UL, 4101UL, 4102UL}) {
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
  for_each_algorithm(cluster.ranks().size(), cluster.ranks().limits(), [&](CollectiveWork work) {
    if (!reduces(work.what)) return;
    for (int type = 0; type < kDataTypes; ++type) {
      for (int combine = 0; combine < kCombines; ++combine) {
        if (!built(work, static_cast<DataType>(type), static_cast<Combine>(combine), GetParam())) continue;
        Case test{.work = work};
        test.work.type = static_cast<DataType>(type);
        test.work.reduction.combine = static_cast<Combine>(combine);
        if (rooted(work.what)) test.work.root = (type + combine) % GetParam();
        if (combine == static_cast<int>(Combine::kProduct) && is_float(test.work.type) &&
            !algorithm::canonical(work.what, work.plan.algorithm, test.work.type, test.work.root, GetParam())) {
          continue;  // no set of numbers whose products are exact in every order
        }
        test.work.plan.channels = 2;
        for (const size_t count : {2501UL, 2502UL}) {  // 16-bit types end with a whole word or not
          test.work.count = count;
          test.misaligned = count == 2501 ? static_cast<size_t>(type % 2) : 0;
          const std::string wrong = cluster.run(test);
          ASSERT_EQ(wrong, "") << describe(test, GetParam());
        }
      }
    }
  });
}

TEST_P(OverRanks, AveragesAndScalarsApply) {
  REQUIRE_GPU();
  Cluster cluster(GetParam());
  for_each_algorithm(cluster.ranks().size(), cluster.ranks().limits(), [&](CollectiveWork work) {
    if (!reduces(work.what)) return;
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kInt32, DataType::kUint32,
                                DataType::kInt8, DataType::kUint8, DataType::kUint64}) {
      if (!built(work, type, Combine::kSum, GetParam())) continue;
      Case test{.work = work};
      test.work.type = type;
      test.work.count = 1501;
      if (rooted(work.what)) test.work.root = static_cast<int>(type) % GetParam();
      const bool in_order = algorithm::canonical(work.what, work.plan.algorithm, type, test.work.root, GetParam());
      if (!in_order && is_float(type)) continue;
      test.work.plan.channels = 2;
      test.work.reduction.average = true;
      ASSERT_EQ(cluster.run(test), "") << "average: " << describe(test, GetParam());
      if (work.plan.joined) continue;  // have no scalars
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
  for_each_algorithm(cluster.ranks().size(), cluster.ranks().limits(), [&](CollectiveWork work) {
    if (!reduces(work.what) && work.what != Collective::kAllGather) return;
    const bool in_ring = work.what == Collective::kReduce && work.plan.algorithm == Algorithm::kRing;
    work.type = in_ring ? DataType::kFloat32 : reduces(work.what) ? DataType::kBfloat16 : DataType::kUint8;
    for (const size_t count : {7UL, 2048UL, 100000UL}) {
      Case test{.work = work, .in_place = true};
      if (work.what == Collective::kReduce) test.work.root = static_cast<int>(count / 8 % 3) % GetParam();
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
  for_each_algorithm(GetParam(), limits, [&](CollectiveWork work) {
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

void poison_outputs(Cluster& cluster, size_t bytes) {
  for (int rank = 0; rank < cluster.ranks().size(); ++rank) {
    const DeviceGuard on(cluster.ranks().device(rank));
    cuda_check(cudaMemset(cluster.output(rank), kPoison, bytes), "cudaMemset");
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
}

/// Reductions of fewer than `most` floats in one launch, several times: `vary` makes the i-th of a rank what it is to
/// be.
template <class Vary>
void expect_that_a_group_is_right(int ranks, size_t most, int repeats, Vary&& vary) {
  Cluster cluster(ranks);
  constexpr int kWorks = 40;
  std::vector<Launch> launches(static_cast<size_t>(ranks));
  std::vector<std::vector<Bytes>> inputs(kWorks);
  std::mt19937 random(7);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int i = 0; i < kWorks; ++i) {
      CollectiveWork work;
      work.type = DataType::kFloat32;
      size_t at = static_cast<size_t>(i) * most * 4;
      at += 4 * vary(work, i, rank);
      ASSERT_LT(work.count, most);
      inputs[static_cast<size_t>(i)].push_back(random_elements(work.type, work.count, false, random));
      work.input = cluster.input(rank) + at;
      work.output = cluster.output(rank) + at;
      const Bytes& input = inputs[static_cast<size_t>(i)].back();
      cuda_check(copy_to_device(cluster.input(rank) + at, input.data(), input.size()), "cudaMemcpy");
      launches[static_cast<size_t>(rank)].collectives.push_back(work);
    }
  }
  cluster.ranks().prepare(launches);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    poison_outputs(cluster, kWorks * most * 4);
    cluster.ranks().launch(launches);
    cluster.ranks().synchronize();
    for (int rank = 0; rank < ranks; ++rank) {
      for (int i = 0; i < kWorks; ++i) {
        const CollectiveWork& work = launches[static_cast<size_t>(rank)].collectives[static_cast<size_t>(i)];
        Bytes want = expected_output(work, rank, inputs[static_cast<size_t>(i)]);
        want.resize(work.count * 4, kPoison);  // of who is not the root nothing is written
        Bytes got(want.size());
        cuda_check(cudaMemcpy(got.data(), work.output, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        ASSERT_EQ(got == want, true) << "work " << i << " rank " << rank << " repeat " << repeat;
      }
    }
  }
}

TEST_P(OverRanks, GroupsOfCollectivesShareALaunch) {
  REQUIRE_GPU();
  expect_that_a_group_is_right(GetParam(), 1100, 1, [](CollectiveWork& work, int i, int) {
    work.count = 1000;
    work.plan.channels = 1 + i % 3;
    work.plan.protocol = i % 7 == 0 ? Protocol::kSimple : Protocol::kLL;
    return 0;
  });
}

/// By the same connections, in channels that some of them leave out. Of some not all ranks' buffers are aligned, so
/// that ranks have different kernels, and cut what has one step into launches otherwise.
TEST_P(OverRanks, BriefOperationsOfOneAndOfTwoStepsFollowEachOther) {
  REQUIRE_GPU();
  const int n = GetParam();
  expect_that_a_group_is_right(n, 1100, 12, [n](CollectiveWork& work, int i, int rank) {
    work.count = i % 4 == 1 ? 1 : 1000 + static_cast<size_t>(i % 5);  // some of them no whole vectors
    work.plan.channels = 1 + i % 3;
    work.plan.protocol = Protocol::kLL128;
    work.plan.algorithm = i / 3 % 3 == 1 ? Algorithm::kOneShot : Algorithm::kTwoShot;
    if (i / 3 % 3 == 2) {
      work.what = Collective::kReduce;
      work.root = i % n;
    }
    return i % 5 == 0 && rank % 2 == 1 ? 1 : 0;  // elements by which buffers are shifted
  });
}

/// Blocks that follow each other begin with any word where their length is no multiple of 16 bytes, and buffers may; of
/// sums of two-byte elements with any element, of what only moves with any byte.
TEST_P(OverRanks, BlocksBeginAndEndWithAnyGrain) {
  REQUIRE_GPU();
  Cluster cluster(GetParam());
  int turn = 0;
  const auto try_each_length = [&](CollectiveWork work, bool in_place) {
    const size_t grain = std::max<size_t>(1, algorithm::grain_of_blocks(work.what, work.type) / bytes_of(work.type));
    for (const size_t grains : {1UL, 3UL, 7UL, 62UL, 251UL, 999UL, 3251UL, 6503UL, 50'001UL}) {  // brief, and longer
      Case test{.work = work, .misaligned = turn % 2 * grain, .in_place = in_place};
      test.work.count = grains * grain;
      test.work.plan.channels = 1 + turn % 3;
      ++turn;
      ASSERT_EQ(cluster.run(test), "") << describe(test, GetParam());
    }
  };
  for (const Collective what :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather, Collective::kAllToAll}) {
    for (const Protocol protocol : {Protocol::kLL, Protocol::kLL128}) {
      CollectiveWork work;
      work.what = what;
      work.plan.algorithm = Algorithm::kOneShot;
      work.plan.protocol = protocol;
      for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kUint8}) {
        if (reduces(what) ? !built(type, Combine::kSum) : type != DataType::kUint8) continue;
        work.type = type;
        try_each_length(work, false);
        if (what != Collective::kAllToAll) try_each_length(work, true);
      }
    }
  }
  CollectiveWork work;
  work.type = DataType::kBfloat16;
  work.plan.algorithm = Algorithm::kTwoShot;
  work.plan.protocol = Protocol::kLL128;
  if (built(work.type, Combine::kSum)) try_each_length(work, true);
}

/// By small CTAs and in parts, joined or not, as long ones go.
TEST_P(OverRanks, LongOperationsBeginBetweenVectors) {
  REQUIRE_GPU();
  const int n = GetParam();
  Cluster cluster(n);
  for_each_algorithm(n, cluster.ranks().limits(), [&](CollectiveWork work) {
    if (!work.plan.small && !work.plan.apart && !work.plan.joined) return;
    for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kUint8}) {
      if (reduces(work.what) ? !built(work, type, Combine::kSum, n) : type != DataType::kUint8) continue;
      if (!algorithm::canonical(work.what, work.plan.algorithm, type, work.root, n)) continue;
      for (const size_t count : {7UL, 1003UL, 100'003UL}) {
        Case test{.work = work, .misaligned = 1, .in_place = count == 1003 && reduces(work.what)};
        test.work.type = type;
        test.work.count = count;
        ASSERT_EQ(cluster.run(test), "") << describe(test, n);
      }
    }
  });
}

/// Three and four ranks of one GPU have both: a channel has up to 15 KB of what is brief in the usual slots, and twice
/// as much in the long ones.
TEST_P(OverRanks, BriefOperationsWithUsualAndWithLongSlotsFollowEachOther) {
  REQUIRE_GPU();
  const auto n = static_cast<size_t>(GetParam());
  expect_that_a_group_is_right(GetParam(), 7000 * n, 6, [n](CollectiveWork& work, int i, int) {
    const bool two_shots = i % 3 != 0;
    work.plan.algorithm = two_shots ? Algorithm::kTwoShot : Algorithm::kOneShot;
    work.plan.protocol = Protocol::kLL128;
    work.plan.channels = 1;
    work.count = (i % 4 < 2 ? 3000 : 6000 + static_cast<size_t>(i % 5)) * (two_shots ? n : 1);
    if (i % 3 == 2) {
      work.what = Collective::kReduce;
      work.root = i % static_cast<int>(n);
    }
    return 0;
  });
}

/// A group of all that goes in parts, joined or not, or by small CTAs, three times over.
void run_large_group(Cluster& cluster) {
  const int n = cluster.ranks().size();
  const Limits limits = cluster.ranks().limits();
  std::vector<CollectiveWork> works;
  for (int turn = 0; turn < 3; ++turn) {
    for_each_algorithm(n, limits, [&](CollectiveWork work) {
      if (!work.plan.apart && !work.plan.small && !work.plan.joined) return;
      work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
      work.count = 5000 + 16 * works.size();
      work.root = turn % n;
      work.plan.channels = 1 + turn;
      work.plan.chunk = 256;  // many times as many as there are slots
      works.push_back(work);
    });
  }
  ASSERT_LE(works.size(), 64U);
  std::mt19937 random(11);
  const size_t room = size_t{5000 + 16 * 64} * 4 * static_cast<size_t>(n);
  std::vector<Launch> launches(static_cast<size_t>(n));
  std::vector<std::vector<Bytes>> inputs(works.size());
  for (size_t i = 0; i < works.size(); ++i) {
    for (int rank = 0; rank < n; ++rank) {
      CollectiveWork work = works[i];
      const size_t blocks = input_blocks(work.what, n, rank == work.root);
      const bool exact = !algorithm::canonical(work.what, work.plan.algorithm, work.type, work.root, n);
      inputs[i].push_back(random_elements(work.type, blocks * work.count, exact, random));
      work.input = cluster.input(rank) + i * room;
      work.output = cluster.output(rank) + i * room;
      cuda_check(copy_to_device(cluster.input(rank) + i * room, inputs[i].back().data(), inputs[i].back().size()),
                 "cudaMemcpy");
      launches[static_cast<size_t>(rank)].collectives.push_back(work);
    }
  }
  for (int repeat = 0; repeat < 20; ++repeat) {
    poison_outputs(cluster, works.size() * room);
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

/// Collectives that run in parts use connections differently, but come one after the other all the same.
TEST_P(OverRanks, GroupsOfLargeCollectivesRunInPartsOneByOne) {
  REQUIRE_GPU();
  Cluster cluster(GetParam());
  run_large_group(cluster);
}

TEST_P(OverRanks, FewCtasCarryTwoChannelsEach) {
  REQUIRE_GPU();
  const int n = GetParam();
  if (n > 4) GTEST_SKIP() << "not offered";
  constexpr int kCtas = 3;
  Cluster few(n, {.max_channels = kCtas});
  int visited = 0;
  for_each_algorithm(n, few.ranks().limits(), [&](CollectiveWork work) {
    if (!work.plan.small) return;
    ++visited;
    work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
    for (const int channels : {1, 2, 2 * kCtas - 1, 2 * kCtas}) {
      for (const size_t count : {1UL, 1003UL, 100'003UL}) {  // blocks begin between vectors
        Case test{.work = work, .misaligned = count == 1003 ? 1UL : 0UL};
        test.in_place = channels == 2 && !rooted(work.what);
        test.work.count = count;
        test.work.root = channels % n;
        test.work.plan.channels = channels;
        test.work.plan.chunk = count < 100'003 ? 64 : 0;  // many times as many as there are slots, or whole slots
        ASSERT_EQ(few.run(test), "") << describe(test, n);
      }
    }
  });
  EXPECT_GE(visited, n > 1 ? 6 : 0);
  run_large_group(few);
}

TEST_P(OverRanks, GraphsReplayAndMixWithEagerCalls) {
  REQUIRE_GPU();
  const int n = GetParam();
  Cluster cluster(n);
  for_each_algorithm(cluster.ranks().size(), cluster.ranks().limits(), [&](CollectiveWork work) {
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

TEST(CudaExecutor, CtasInClustersGiveTheSameBits) {
  if (gpus() < 2) GTEST_SKIP() << "only ranks with a GPU each form clusters";
  for (const int size : {-1, 8}) {
    Cluster cluster(2, {.cluster_ctas = size});
    for_each_algorithm(2, cluster.ranks().limits(), [&](CollectiveWork work) {
      work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
      work.count = (size_t{2} << 20) / bytes_of(work.type) + 5;
      for (const int channels : {12, 24}) {
        Case test{.work = work};
        test.work.plan.channels = channels;
        ASSERT_EQ(cluster.run(test), "") << describe(test, 2) << " clusters " << size;
      }
    });
  }
}

TEST(CudaExecutor, WithoutPeerAccessDataGoesThroughHostMemory) {
  REQUIRE_GPU();
  Cluster cluster(3, {.peer_access = false});
  for_each_algorithm(cluster.ranks().size(), cluster.ranks().limits(), [&](CollectiveWork work) {
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

}  // namespace

}  // namespace nitinol::gpu_testing
