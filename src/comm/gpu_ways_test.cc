// That the kernels which communicators of GPUs load are those that tuning chooses.
#if defined(NITINOL_CUDA)

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/error.h"
#include "executor/cuda/kernel_set.h"
#include "executor/cuda/sizes.h"
#include "executor/cuda/ways.h"
#include "tuning/choose.h"
#include "tuning/rules.h"

namespace nitinol::cuda {
namespace {

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat64, DataType::kInt32,
                               DataType::kFloat8E4m3};

std::vector<Machine> machines() {
  std::vector<Machine> all;
  for (const int ranks : {2, 3, 4, 8}) {
    for (const int max_channels : {0, 24, 32, 40}) {
      for (const size_t bulk_bytes : {size_t{0}, size_t{227} << 10}) {
        for (const bool in_host_memory : {false, true}) {
          all.push_back({.ranks = ranks,
                         .multiprocessors = 132,
                         .lines_stay_whole = !in_host_memory,
                         .has_clusters = true,
                         .bulk_bytes = bulk_bytes,
                         .in_host_memory = in_host_memory,
                         .max_channels = max_channels});
        }
      }
    }
  }
  return all;
}

Way way_taken(const CollectiveWork& work, const Sizes& sizes, int ranks) {
  const Protocol protocol = work.plan.protocol;
  return way_of(work.plan, protocol == Protocol::kLL ? queue_of_ll(sizes, work, ranks) : queue_of(protocol));
}

/// What a user may ask for.
std::vector<Rules> rules() {
  std::vector<Rules> all = {Rules::any()};
  for (const char* const algorithms : {"ring", "tree"}) {
    all.push_back(Rules::any());
    restrict_algorithms(algorithms, all.back());
  }
  for (const char* const protocols : {"LL", "LL128", "Simple"}) {
    all.push_back(Rules::any());
    restrict_protocols(protocols, all.back());
  }
  return all;
}

bool choose_plan(CollectiveWork& work, int ranks, const Limits& limits, const Rules& allowed) {
  try {
    work.plan = choose(question_of(work, ranks), limits, allowed);
    return true;
  } catch (const Error&) {  // there is nothing of what is allowed
    return false;
  }
}

/// All collectives of that type, of few bytes and of many, by what tuning chooses.
template <class Visit>
void for_each_choice(const Sizes& sizes, int ranks, const Rules& allowed, DataType type, Visit&& visit) {
  for (int what = 0; what < kCollectives; ++what) {
    for (const Combine combine : {Combine::kSum, Combine::kProduct, Combine::kMax}) {
      for (const int root : std::set<int>{0, 1, ranks / 2, ranks - 1}) {
        for (size_t bytes = 16; bytes <= size_t{1} << 30; bytes *= 2) {
          CollectiveWork work;
          work.what = static_cast<Collective>(what);
          work.type = type;
          work.count = bytes / bytes_of(type) + 3;
          work.root = root;
          work.reduction.combine = combine;
          if (choose_plan(work, ranks, sizes.limits, allowed)) visit(work);
        }
      }
    }
  }
}

bool has_kernel(const CollectiveWork& work, Way way) {
  const KernelSet* const set =
      reduces(work.what) ? find_reduce_kernels(work.type, combiner_for(work.reduction.combine)) : &move_kernels();
  return set == nullptr || set->at(work.what, work.plan.algorithm, way, Use::kUsual) != nullptr;  // null: not built
}

TEST(GpuWays, AreAllThatTuningChoosesAndHaveKernels) {
  for (const Machine& machine : machines()) {
    const Sizes sizes = sizes_for(machine);
    const Ways ways = ways_of(sizes);
    for (const Rules& allowed : rules()) {
      for (const DataType type : kTypes) {
        for_each_choice(sizes, machine.ranks, allowed, type, [&](const CollectiveWork& work) {
          const Way way = way_taken(work, sizes, machine.ranks);
          EXPECT_TRUE(ways.has(work.what, way) && has_kernel(work, way))
              << name_of(work.what) << " of " << work.count << " elements of type " << static_cast<int>(type)
              << ", way " << static_cast<int>(way) << ", " << machine.ranks << " ranks, " << machine.max_channels
              << " CTAs, host memory " << machine.in_host_memory;
        });
      }
    }
  }
}

}  // namespace
}  // namespace nitinol::cuda

#endif
