// Estimates for GPUs beside what was measured there.
#if defined(NITINOL_CUDA)

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "executor/cuda/sizes.h"
#include "executor/cuda/topology.h"
#include "executor/simulate/estimate.h"
#include "tuning/choose.h"

namespace nitinol {
namespace {

struct Measured {
  Collective what;
  int ranks;
  size_t bytes;  ///< of the larger buffer
  double us;
};

/// Floats in graphs, H100 (bench/results, gpu_2xH100_graph_float.json and gpu_4xH100_graph_float.json).
constexpr Measured kPeers[] = {
    {Collective::kAllReduce, 2, 1 << 10, 2.6},
    {Collective::kAllReduce, 2, 1024 << 10, 6.8},
    {Collective::kAllReduce, 2, 262144 << 10, 767.9},
    {Collective::kAllGather, 2, 1 << 10, 2.5},
    {Collective::kAllGather, 2, 1024 << 10, 5.0},
    {Collective::kAllGather, 2, 262144 << 10, 379.3},
    {Collective::kReduceScatter, 2, 1 << 10, 2.6},
    {Collective::kReduceScatter, 2, 1024 << 10, 5.2},
    {Collective::kReduceScatter, 2, 262144 << 10, 387.3},
    {Collective::kBroadcast, 2, 1 << 10, 2.3},
    {Collective::kBroadcast, 2, 1024 << 10, 5.9},
    {Collective::kBroadcast, 2, 262144 << 10, 737.1},
    {Collective::kReduce, 2, 1 << 10, 2.5},
    {Collective::kReduce, 2, 1024 << 10, 5.8},
    {Collective::kReduce, 2, 262144 << 10, 735.6},
    {Collective::kAllToAll, 2, 1 << 10, 2.6},
    {Collective::kAllToAll, 2, 1024 << 10, 5.0},
    {Collective::kAllToAll, 2, 262144 << 10, 386.6},
    {Collective::kAllReduce, 4, 1 << 10, 2.9},
    {Collective::kAllReduce, 4, 64 << 10, 4.4},
    {Collective::kAllReduce, 4, 1024 << 10, 9.1},
    {Collective::kAllReduce, 4, 16384 << 10, 93.2},
    {Collective::kAllReduce, 4, 262144 << 10, 1185.0},
    {Collective::kAllGather, 4, 1 << 10, 2.7},
    {Collective::kAllGather, 4, 64 << 10, 3.1},
    {Collective::kAllGather, 4, 1024 << 10, 5.9},
    {Collective::kAllGather, 4, 16384 << 10, 50.0},
    {Collective::kAllGather, 4, 262144 << 10, 600.2},
    {Collective::kReduceScatter, 4, 1 << 10, 2.9},
    {Collective::kReduceScatter, 4, 64 << 10, 3.3},
    {Collective::kReduceScatter, 4, 1024 << 10, 6.5},
    {Collective::kReduceScatter, 4, 16384 << 10, 50.3},
    {Collective::kReduceScatter, 4, 262144 << 10, 611.5},
    {Collective::kBroadcast, 4, 1 << 10, 2.4},
    {Collective::kBroadcast, 4, 64 << 10, 3.0},
    {Collective::kBroadcast, 4, 1024 << 10, 6.5},
    {Collective::kBroadcast, 4, 16384 << 10, 56.4},
    {Collective::kBroadcast, 4, 262144 << 10, 751.6},
    {Collective::kReduce, 4, 1 << 10, 2.6},
    {Collective::kReduce, 4, 64 << 10, 3.5},
    {Collective::kReduce, 4, 1024 << 10, 8.3},
    {Collective::kReduce, 4, 16384 << 10, 64.7},
    {Collective::kReduce, 4, 262144 << 10, 828.4},
    {Collective::kAllToAll, 4, 1 << 10, 2.6},
    {Collective::kAllToAll, 4, 64 << 10, 3.1},
    {Collective::kAllToAll, 4, 1024 << 10, 6.0},
    {Collective::kAllToAll, 4, 16384 << 10, 49.3},
    {Collective::kAllToAll, 4, 262144 << 10, 609.2},
};
/// The same through host memory (gpu_2xH100_host_path_graph.json and gpu_4xH100_host_path_graph.json).
constexpr Measured kThroughHost[] = {
    {Collective::kAllReduce, 2, 1 << 10, 4.0},
    {Collective::kAllReduce, 2, 1024 << 10, 50.0},
    {Collective::kAllReduce, 2, 65536 << 10, 1752.0},
    {Collective::kAllGather, 2, 1 << 10, 3.9},
    {Collective::kAllGather, 2, 1024 << 10, 30.4},
    {Collective::kAllGather, 2, 65536 << 10, 878.4},
    {Collective::kReduceScatter, 2, 1 << 10, 4.0},
    {Collective::kReduceScatter, 2, 1024 << 10, 31.2},
    {Collective::kReduceScatter, 2, 65536 << 10, 894.2},
    {Collective::kBroadcast, 2, 1 << 10, 4.1},
    {Collective::kBroadcast, 2, 1024 << 10, 30.6},
    {Collective::kBroadcast, 2, 65536 << 10, 1359.2},
    {Collective::kReduce, 2, 1 << 10, 4.3},
    {Collective::kReduce, 2, 1024 << 10, 32.5},
    {Collective::kReduce, 2, 65536 << 10, 1337.4},
    {Collective::kAllToAll, 2, 1 << 10, 4.0},
    {Collective::kAllToAll, 2, 1024 << 10, 30.1},
    {Collective::kAllToAll, 2, 65536 << 10, 878.8},
    {Collective::kAllReduce, 4, 1 << 10, 4.9},
    {Collective::kAllReduce, 4, 256 << 10, 35.8},
    {Collective::kAllReduce, 4, 1024 << 10, 77.2},
    {Collective::kAllReduce, 4, 65536 << 10, 2915.4},
    {Collective::kAllGather, 4, 1 << 10, 4.6},
    {Collective::kAllGather, 4, 256 << 10, 15.7},
    {Collective::kAllGather, 4, 1024 << 10, 46.0},
    {Collective::kAllGather, 4, 65536 << 10, 1463.2},
    {Collective::kReduceScatter, 4, 1 << 10, 4.8},
    {Collective::kReduceScatter, 4, 256 << 10, 15.5},
    {Collective::kReduceScatter, 4, 1024 << 10, 48.7},
    {Collective::kReduceScatter, 4, 65536 << 10, 1433.4},
    {Collective::kBroadcast, 4, 1 << 10, 4.5},
    {Collective::kBroadcast, 4, 256 << 10, 15.8},
    {Collective::kBroadcast, 4, 1024 << 10, 48.2},
    {Collective::kBroadcast, 4, 65536 << 10, 1477.5},
    {Collective::kReduce, 4, 1 << 10, 4.7},
    {Collective::kReduce, 4, 256 << 10, 29.9},
    {Collective::kReduce, 4, 1024 << 10, 73.8},
    {Collective::kReduce, 4, 65536 << 10, 1994.2},
    {Collective::kAllToAll, 4, 1 << 10, 4.4},
    {Collective::kAllToAll, 4, 256 << 10, 14.9},
    {Collective::kAllToAll, 4, 1024 << 10, 41.9},
    {Collective::kAllToAll, 4, 65536 << 10, 1577.9},
};

double estimated(const cuda::Machine& machine, const Measured& one) {
  const cuda::Sizes sizes = cuda::sizes_for(machine);
  CollectiveWork work;
  work.what = one.what;
  work.type = reduces(one.what) ? DataType::kFloat32 : DataType::kUint8;
  work.count = one.bytes / bytes_of(work.type);
  if (has_block_per_rank(one.what)) work.count /= static_cast<size_t>(one.ranks);
  work.plan = choose(question_of(work, one.ranks), sizes.limits, Rules::any());
  return simulate::estimate(work, one.ranks, sizes.limits.grain(work.type),
                            cuda::topology_of(machine, true, work.plan.protocol));
}

void expect_near(std::span<const Measured> all, bool in_host_memory) {
  for (const Measured& one : all) {
    cuda::Machine machine{.ranks = one.ranks, .multiprocessors = 132};
    machine.bulk_bytes = size_t{227} << 10;
    machine.has_clusters = true;
    machine.in_host_memory = in_host_memory;
    machine.lines_stay_whole = !in_host_memory;
    const double us = estimated(machine, one);
    EXPECT_LT(std::max(us / one.us, one.us / us), 2.1) << name_of(one.what) << " of " << one.bytes << " bytes between "
                                                       << one.ranks << ": " << us << " us, measured " << one.us;
  }
}

TEST(EstimateOfGpus, IsNearToWhatWasMeasured) {
  expect_near(kPeers, false);
  expect_near(kThroughHost, true);
}

}  // namespace
}  // namespace nitinol

#endif
