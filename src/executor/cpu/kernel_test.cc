// What can go wrong and what lives how long: aborts, mismatches, hostile memory, scalars, graphs after their executor.
#include "executor/cpu/kernel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "executor/cpu/plain_arithmetic.h"
#include "executor/cpu/team_testing.h"
#include "model/arithmetic.h"

namespace nitinol::cpu {
namespace {

CollectiveWork all_reduce(const void* input, void* output, size_t count, DataType type = DataType::kFloat32) {
  CollectiveWork work;
  work.input = input;
  work.output = output;
  work.count = count;
  work.type = type;
  return work;
}

Launch launch_of(const CollectiveWork& work) { return Launch{.collectives = {work}, .messages = {}}; }

TEST(Kernel, EndsSoonAfterAnAbort) {
  for (const bool message : {false, true}) {
    Team team(2);
    std::vector<float> data(100000);
    Launch launch;
    if (message) {
      launch.messages.push_back({MessageWork::Direction::kReceive, 1, data.data(), 400000});
    } else {
      launch = launch_of(all_reduce(data.data(), data.data(), data.size()));
    }
    std::atomic<bool> started{false};
    std::thread waiting([&] {
      started = true;
      Team::run_launch(*team.engine(0), launch);
    });
    while (!started) std::this_thread::yield();
    team.engine(0)->rank().abort();
    waiting.join();
    Team::run_launch(*team.engine(0), launch);  // later ones too
    EXPECT_EQ(team.failures(), std::vector<std::string>{});
  }
}

/// Of one rank, too, where a collective is a copy.
TEST(Kernel, ThatHasNotBegunDoesNothingAfterAnAbort) {
  for (const int ranks : {1, 2}) {
    Team team(ranks);
    Engine& engine = *team.engine(0);
    const std::vector<float> input(1000, 1.0F);
    std::vector<float> output(1000);
    const Launch launch = launch_of(all_reduce(input.data(), output.data(), output.size()));
    engine.rank().prepare(launch);
    std::unique_ptr<Kernel> kernel = engine.make_kernel(launch);
    EXPECT_FALSE(engine.rank().is_quiet()) << "it may begin";
    engine.rank().abort();
    EXPECT_TRUE(engine.rank().is_quiet());
    kernel->run();
    Engine::recycle(std::move(kernel));
    EXPECT_EQ(output, std::vector<float>(1000));
    const std::lock_guard running(engine.rank().turn());
    EXPECT_FALSE(engine.rank().is_quiet()) << "one still runs";
  }
}

TEST(Kernel, ReportsCallsThatDoNotMatch) {
  Team team(2);
  team.run([&](int rank, Engine& engine) {
    std::vector<float> data(100);
    Team::run_launch(engine, launch_of(all_reduce(data.data(), data.data(), rank == 0 ? 100 : 90)));
  });
  ASSERT_EQ(team.failures().size(), 2U);
  EXPECT_NE(team.failures()[0].find("do not match"), std::string::npos);
}

TEST(Kernel, ReadsADeviceScalarWhenItRuns) {
  Team team(2, Living::kApart);
  team.run([&](int rank, Engine& engine) {
    const std::vector<float> input(1000, 3.0F);
    std::vector<float> output(1000);
    float scalar = 0.0F;
    CollectiveWork work = all_reduce(input.data(), output.data(), input.size());
    work.reduction.scalar = Reduction::Scalar::kDevice;
    work.reduction.pointer = &scalar;
    Launch launch = launch_of(work);
    engine.rank().prepare(launch);
    const std::unique_ptr<Kernel> kernel = engine.make_kernel(launch);
    for (int i = 1; i < 4; ++i) {
      scalar = static_cast<float>(i * (rank + 1));  // as a graph's next replay may find it
      kernel->run();
      EXPECT_EQ(output, std::vector<float>(1000, static_cast<float>(3 * 3 * i)));
    }
  });
}

TEST(Kernel, AppliesImmediateScalarsAndAveragesInEveryCollectiveThatReduces) {
  struct Entry {
    Collective what;
    Algorithm algorithm;
  };
  std::vector<Entry> entries;
  algorithm::Table::for_each([&](auto entry) {
    if (reduces(entry.row.what)) entries.push_back({entry.row.what, entry.row.algorithm});
  });
  for (const int ranks : {1, 2, 5}) {
    Team team(ranks);
    team.run([&](int rank, Engine& engine) {
      for (const Entry& entry : entries) {
        for (const bool average : {false, true}) {
          std::vector<uint16_t> input(static_cast<size_t>(ranks) * 100, Float16::round(static_cast<float>(rank)));
          std::vector<uint16_t> output(100);
          CollectiveWork work = all_reduce(input.data(), output.data(), 100, DataType::kFloat16);
          work.what = entry.what;
          work.plan.algorithm = entry.algorithm;
          work.plan.chunk = 48;
          work.reduction.average = average;
          const uint16_t scalar = Float16::round(0.5F);
          work.reduction.scalar = Reduction::Scalar::kImmediate;
          std::memcpy(&work.reduction.immediate, &scalar, sizeof scalar);
          Team::run_launch(engine, launch_of(work));
          if (entry.what == Collective::kReduce && rank != 0) continue;
          float sum = 0;
          for (int each = 0; each < ranks; ++each) sum += 0.5F * static_cast<float>(each);
          const uint16_t expected = Float16::round(average ? sum / static_cast<float>(ranks) : sum);
          EXPECT_EQ(output, std::vector<uint16_t>(100, expected)) << name_of(entry.what) << name_of(entry.algorithm);
        }
      }
    });
  }
}

/// What rank 0 of two gets as the sum, many times, when their kernels run in threads that have called `set`.
template <class Float>
std::vector<Float> sums_in_thread_that(void (*set)(), Float mine, Float others, DataType type) {
  Team team(2);
  std::vector<Float> sums(37);
  team.run([&](int rank, Engine& engine) {
    const std::vector<Float> input(sums.size(), rank == 0 ? mine : others);
    std::vector<Float> output(sums.size());
    const Launch launch = launch_of(all_reduce(input.data(), output.data(), input.size(), type));
    engine.rank().prepare(launch);
    const std::unique_ptr<Kernel> kernel = engine.make_kernel(launch);
    std::fenv_t before;
    std::fegetenv(&before);
    set();
    const int rounding = std::fegetround();
    std::feclearexcept(FE_ALL_EXCEPT);
    kernel->run();
    EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), 0) << "flags of the kernel's";
    EXPECT_EQ(std::fegetround(), rounding);
    std::fesetenv(&before);
    if (rank == 0) sums = output;
  });
  return sums;
}

TEST(Kernel, RoundsToNearestWhateverTheThreadThatRunsItDoes) {
  const auto upward = [] { std::fesetround(FE_UPWARD); };
  // An eighth of the last digit more.
  const float just_over = 1.0F + std::numeric_limits<float>::epsilon();
  const float eighth = std::numeric_limits<float>::epsilon() / 8;
  EXPECT_EQ(sums_in_thread_that(upward, just_over, eighth, DataType::kFloat32), std::vector<float>(37, just_over));
  EXPECT_EQ(sums_in_thread_that(upward, 1.0, 1e-300, DataType::kFloat64), std::vector<double>(37, 1.0));
}

TEST(Kernel, DoesNotTrapWhateverTheThreadThatRunsItDoes) {
  const auto trap = [] { feenableexcept(FE_OVERFLOW | FE_INVALID | FE_DIVBYZERO); };
  const float most = std::numeric_limits<float>::max();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(sums_in_thread_that(trap, most, most, DataType::kFloat32), std::vector<float>(37, infinity));
}

#if defined(__x86_64__)
TEST(Kernel, KeepsTheSmallestNumbersWhereItsThreadFlushesThemToZero) {
  const auto flush = [] { _mm_setcsr(_mm_getcsr() | 0x8040); };  // as programs that were linked with -ffast-math
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sums_in_thread_that(flush, least, 2 * least, DataType::kFloat32), std::vector<float>(37, 3 * least));
}
#endif

TEST(Kernel, GivesTheSameBitsForEveryCanonicalAlgorithmAndChunk) {
  constexpr int kRanks = 5;
  Team team(kRanks);
  team.run([&](int rank, Engine& engine) {
    std::vector<uint16_t> input(999);
    for (size_t i = 0; i < input.size(); ++i) {
      input[i] = Bfloat16::round(1.0F + static_cast<float>(static_cast<size_t>(rank * 7) + i * 13 % 101) / 64.0F);
    }
    std::vector<uint16_t> first(input.size());
    Team::run_launch(engine, launch_of(all_reduce(input.data(), first.data(), input.size(), DataType::kBfloat16)));
    std::vector<uint16_t> expected(input.size());
    for (size_t i = 0; i < input.size(); ++i) {
      float sum = 0;
      for (size_t each = 0; each < kRanks; ++each) {
        const float value =
            Bfloat16::widen(Bfloat16::round(1.0F + static_cast<float>(each * 7 + i * 13 % 101) / 64.0F));
        sum = each == 0 ? value : sum + value;
      }
      expected[i] = Bfloat16::round(sum);
    }
    EXPECT_EQ(first, expected);
    for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot}) {
      for (const size_t chunk : {16, 100, 5000}) {
        CollectiveWork work = all_reduce(input.data(), first.data(), input.size(), DataType::kBfloat16);
        work.plan = {.algorithm = algorithm, .chunk = chunk};
        Team::run_launch(engine, launch_of(work));
        EXPECT_EQ(first, expected);
      }
    }
  });
}

TEST(Kernel, ReachesOnlyThePeersThatItNeeds) {
  constexpr int kRanks = 8;
  Team team(kRanks, Living::kApart);
  const auto once = [&](Algorithm algorithm) {
    team.run([&](int, Engine& engine) {
      std::vector<int> data(1000, 1);
      CollectiveWork work = all_reduce(data.data(), data.data(), data.size(), DataType::kInt32);
      work.plan.algorithm = algorithm;
      Team::run_launch(engine, launch_of(work));
      EXPECT_EQ(data, std::vector<int>(1000, kRanks));
    });
  };
  once(Algorithm::kRing);
  EXPECT_EQ(team.hub().fetches(), 2 * kRanks);
  once(Algorithm::kRing);
  EXPECT_EQ(team.hub().fetches(), 2 * kRanks);
  once(Algorithm::kOneShot);
  EXPECT_EQ(team.hub().fetches(), (kRanks - 1) * kRanks);
}

TEST(Kernel, HoldsWhatItNeedsAfterItsExecutorIsGone) {
  std::vector<int> data(10, 1);
  std::unique_ptr<Kernel> kernel;
  std::unique_ptr<Kernel> other;
  {
    Team team(2);
    Launch launch = launch_of(all_reduce(data.data(), data.data(), 10, DataType::kInt32));
    team.engine(0)->rank().prepare(launch);
    kernel = team.engine(0)->make_kernel(launch);
    other = team.engine(1)->make_kernel(Launch{});
  }
  std::thread aborted([&] { kernel->run(); });
  // Nobody will ever answer. The engine is reachable only through the kernel: recycle from here once it was told to
  // stop.
  other->run();
  kernel->engine()->rank().abort();
  aborted.join();
  Engine::recycle(std::move(kernel));
  Engine::recycle(std::move(other));
}

TEST(Arena, RefusesWhatIsNotThePeersArena) {
  const Geometry geometry = Geometry::of(4, 0);
  const auto arena = Arena::create(geometry, 2, {1, 2}, true);
  EXPECT_NO_THROW(Arena::map(geometry, 2, {1, 2}, arena->share()));
  EXPECT_THROW(Arena::map(geometry, 1, {1, 2}, arena->share()), Error);
  EXPECT_THROW(Arena::map(geometry, 2, {1, 3}, arena->share()), Error);
  EXPECT_THROW(Arena::map(Geometry::of(5, 0), 2, {1, 2}, arena->share()), Error);
  EXPECT_THROW(Arena::map(Geometry::of(4, 1 << 20), 2, {1, 2}, arena->share()), Error);
  arena->header().magic = 0;
  EXPECT_THROW(Arena::map(geometry, 2, {1, 2}, arena->share()), Error);
}

TEST(Arena, StaysModestForAnyNumberOfRanks) {
  for (const int ranks : {2, 3, 4, 8, 16, 64, 100}) {
    const Geometry geometry = Geometry::of(ranks, 0);
    for (const size_t bytes : geometry.slot_bytes) EXPECT_GE(bytes, 4096U);
    EXPECT_LE(geometry.total_bytes(), 5U << 20) << ranks;
  }
  EXPECT_LE(Geometry::of(1024, 0).total_bytes(), 64U << 20);
  EXPECT_EQ(Geometry::of(2, 4 << 20).slot_bytes[0], 1U << 20);
}

TEST(Arena, QueuesDoNotOverlap) {
  const Geometry geometry = Geometry::of(7, 0);
  for (int lane = 0; lane < kLanes; ++lane) {
    const size_t queue = kSlots * geometry.slot_bytes[static_cast<size_t>(lane)];
    for (int peer = 0; peer < 7; ++peer) {
      const size_t begin = geometry.data_offset(peer, static_cast<Lane>(lane));
      EXPECT_EQ(begin % 4096, 0U);
      EXPECT_LE(begin + queue, geometry.total_bytes());
      EXPECT_GE(begin, geometry.connection_offset(6, Lane::kMessages) + sizeof(Connection));
      if (peer > 0) {
        EXPECT_EQ(begin, geometry.data_offset(peer - 1, static_cast<Lane>(lane)) + queue);
      }
    }
  }
  EXPECT_GE(geometry.data_offset(0, Lane::kMessages), geometry.data_offset(7, Lane::kCollectives));
}

TEST(Rank, SurvivesAPeerThatWritesNonsenseIntoItsQueues) {
  Team team(2, Living::kApart);
  // Rank 1 is played by hand: it claims slots that are filled with impossible sizes, and frees what was never sent.
  const MemoryHandle handle = team.hub().fetch(0, 0x6370752d6172656e);
  const Geometry geometry = Geometry::of(2, 0);
  const SharedMemory memory = SharedMemory::map(handle, geometry.total_bytes());
  auto& queue = *reinterpret_cast<Connection*>(memory.data() + geometry.connection_offset(1, Lane::kCollectives));
  auto& messages = *reinterpret_cast<Connection*>(memory.data() + geometry.connection_offset(1, Lane::kMessages));
  for (Connection* each : {&queue, &messages}) {
    each->slots[0].bytes = ~uint32_t{0} - 100;
    each->slots[0].tag_and_consumed = 77;
    each->slots[0].sequence.store(1);
  }
  std::vector<float> data(5000, 1.0F);
  Team::run_launch(*team.engine(0), launch_of(all_reduce(data.data(), data.data(), data.size())));
  EXPECT_EQ(team.failures().size(), 1U);
  EXPECT_EQ(data, std::vector<float>(5000, 1.0F));
}

}  // namespace
}  // namespace nitinol::cpu
