// Estimates for GPUs beside what was measured there.
#if defined(NITINOL_CUDA)

#include "comm/estimate.h"

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

/// Floats in graphs, H100, 2026-11-27 (bench/results, gpu_2xH100_graph_float.json and gpu_4xH100_graph_float.json).
constexpr Measured kPeers[] = {
    {Collective::kAllReduce, 2, 1 << 10, 2.6},     {Collective::kAllReduce, 2, 1 << 16, 3.3},
    {Collective::kAllReduce, 2, 1 << 20, 6.8},     {Collective::kAllReduce, 2, 1 << 22, 18.6},
    {Collective::kAllReduce, 2, 1 << 24, 64.7},    {Collective::kAllReduce, 2, 1 << 28, 767.9},
    {Collective::kAllGather, 2, 1 << 20, 5.0},     {Collective::kAllGather, 2, 1 << 28, 379.3},
    {Collective::kBroadcast, 2, 1 << 20, 5.9},     {Collective::kBroadcast, 2, 1 << 28, 737.1},
    {Collective::kAllReduce, 4, 1 << 10, 2.9},     {Collective::kAllReduce, 4, 1 << 16, 4.4},
    {Collective::kAllReduce, 4, 1 << 20, 9.1},     {Collective::kAllReduce, 4, 1 << 22, 24.8},
    {Collective::kAllReduce, 4, 1 << 24, 93.2},    {Collective::kAllReduce, 4, 1 << 28, 1185.0},
    {Collective::kAllGather, 4, 1 << 20, 5.9},     {Collective::kAllGather, 4, 1 << 24, 50.0},
    {Collective::kReduceScatter, 4, 1 << 16, 3.3}, {Collective::kReduceScatter, 4, 1 << 28, 611.5},
    {Collective::kBroadcast, 4, 1 << 18, 4.0},     {Collective::kBroadcast, 4, 1 << 28, 751.6},
    {Collective::kReduce, 4, 1 << 20, 8.3},        {Collective::kReduce, 4, 1 << 28, 828.4},
    {Collective::kAllToAll, 4, 1 << 22, 14.9},     {Collective::kAllToAll, 4, 1 << 28, 609.2},
};
/// The same through host memory (gpu_2xH100_host_path_graph.json and gpu_4xH100_host_path_graph.json).
constexpr Measured kThroughHost[] = {
    {Collective::kAllReduce, 2, 1 << 10, 4.0},    {Collective::kAllReduce, 2, 1 << 20, 50.0},
    {Collective::kAllReduce, 2, 1 << 26, 1752.0}, {Collective::kBroadcast, 2, 1 << 26, 1359.2},
    {Collective::kAllGather, 4, 1 << 18, 15.7},   {Collective::kAllGather, 4, 1 << 26, 1463.2},
    {Collective::kAllReduce, 4, 1 << 22, 233.1},  {Collective::kAllReduce, 4, 1 << 26, 2915.4},
};

double estimated(const cuda::Machine& machine, const Measured& one) {
  const cuda::Sizes sizes = cuda::sizes_for(machine);
  CollectiveWork work;
  work.what = one.what;
  work.type = reduces(one.what) ? DataType::kFloat32 : DataType::kUint8;
  work.count = one.bytes / bytes_of(work.type);
  if (has_block_per_rank(one.what)) work.count /= static_cast<size_t>(one.ranks);
  const Question question{
      .what = work.what, .count = work.count, .type = work.type, .order_free = !reduces(work.what), .ranks = one.ranks};
  work.plan = choose(question, sizes.limits, Rules::any());
  const size_t grain = sizes.limits.grain_bytes / bytes_of(work.type);
  return simulate::estimate(work, one.ranks, grain, cuda::topology_of(machine, true, work.plan.protocol));
}

void expect_near(std::span<const Measured> all, bool in_host_memory) {
  for (const Measured& one : all) {
    cuda::Machine machine{.ranks = one.ranks, .multiprocessors = 132};
    machine.bulk_bytes = size_t{227} << 10;
    machine.in_host_memory = in_host_memory;
    machine.lines_stay_whole = !in_host_memory;
    const double us = estimated(machine, one);
    EXPECT_LT(std::max(us / one.us, one.us / us), 1.8) << name_of(one.what) << " of " << one.bytes << " bytes between "
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
