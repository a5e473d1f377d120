// Every algorithm of the table on threads: exact results, nothing written beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "executor/cpu/team_testing.h"
#include "model/arithmetic.h"

namespace nitinol::cpu {
namespace {

constexpr std::byte kPoison{0xa5};
constexpr size_t kGuard = 64;  ///< poisoned bytes before and behind every buffer

struct Case {
  Collective what;
  Algorithm algorithm;
  DataType type = DataType::kInt32;
  size_t count = 0;
  size_t chunk = 0;
  int root = 0;
  Reduction reduction = {};
  bool in_place = false;

  std::string text() const {
    return std::string(name_of(what)) + " " + name_of(algorithm) + " type " + std::to_string(static_cast<int>(type)) +
           " count " + std::to_string(count) + " chunk " + std::to_string(chunk) + " root " + std::to_string(root) +
           " op " + std::to_string(static_cast<int>(reduction.combine)) + (in_place ? " in place" : "");
  }
};

/// What a rank contributes: whole numbers so small that every type holds sums and products of eight of them exactly.
int contribution(int rank, size_t i, Combine how) {
  if (how == Combine::kProduct) return (static_cast<size_t>(rank) + i) % 3 == 0 ? 2 : 1;
  return static_cast<int>((static_cast<size_t>(rank) * 5 + i) % 3);
}

template <DataType type>
std::vector<std::byte> to_bytes(const std::vector<int>& values) {
  using A = Arithmetic<type>;
  std::vector<std::byte> bytes(values.size() * sizeof(typename A::Element));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto element = A::from_accumulator(static_cast<typename A::Accumulator>(values[i]));
    std::memcpy(bytes.data() + i * sizeof element, &element, sizeof element);
  }
  return bytes;
}

std::vector<std::byte> to_bytes(DataType type, const std::vector<int>& values) {
  switch (type) {
    case DataType::kInt8: return to_bytes<DataType::kInt8>(values);
    case DataType::kUint8: return to_bytes<DataType::kUint8>(values);
    case DataType::kInt32: return to_bytes<DataType::kInt32>(values);
    case DataType::kUint32: return to_bytes<DataType::kUint32>(values);
    case DataType::kInt64: return to_bytes<DataType::kInt64>(values);
    case DataType::kUint64: return to_bytes<DataType::kUint64>(values);
    case DataType::kFloat16: return to_bytes<DataType::kFloat16>(values);
    case DataType::kFloat32: return to_bytes<DataType::kFloat32>(values);
    case DataType::kFloat64: return to_bytes<DataType::kFloat64>(values);
    case DataType::kBfloat16: return to_bytes<DataType::kBfloat16>(values);
    case DataType::kFloat8E4m3: return to_bytes<DataType::kFloat8E4m3>(values);
    case DataType::kFloat8E5m2: return to_bytes<DataType::kFloat8E5m2>(values);
  }
  return {};
}

bool has_n_inputs(Collective what) {
  return what == Collective::kReduceScatter || what == Collective::kAllToAll || what == Collective::kScatter;
}
bool has_n_outputs(Collective what) {
  return what == Collective::kAllGather || what == Collective::kAllToAll || what == Collective::kGather;
}
bool only_root_has_output(Collective what) { return what == Collective::kReduce || what == Collective::kGather; }
bool only_root_has_input(Collective what) { return what == Collective::kBroadcast || what == Collective::kScatter; }

int combined(const Case& test, int ranks, size_t i) {
  int result = contribution(0, i, test.reduction.combine);
  for (int rank = 1; rank < ranks; ++rank) {
    const int other = contribution(rank, i, test.reduction.combine);
    switch (test.reduction.combine) {
      case Combine::kSum: result += other; break;
      case Combine::kProduct: result *= other; break;
      case Combine::kMax: result = std::max(result, other); break;
      case Combine::kMin: result = std::min(result, other); break;
    }
  }
  return result;
}

std::vector<int> input_of(const Case& test, int rank, int ranks) {
  std::vector<int> values(has_n_inputs(test.what) ? test.count * static_cast<size_t>(ranks) : test.count);
  for (size_t i = 0; i < values.size(); ++i) values[i] = contribution(rank, i, test.reduction.combine);
  return values;
}

std::vector<int> output_of(const Case& test, int rank, int ranks) {
  const Combine how = test.reduction.combine;
  const size_t n = static_cast<size_t>(ranks);
  std::vector<int> values(has_n_outputs(test.what) ? test.count * n : test.count);
  const size_t mine = static_cast<size_t>(rank) * test.count;
  for (size_t i = 0; i < values.size(); ++i) {
    const int from = test.count == 0 ? 0 : static_cast<int>(i / test.count);
    const size_t in_block = test.count == 0 ? 0 : i % test.count;
    switch (test.what) {
      case Collective::kAllReduce:
      case Collective::kReduce: values[i] = combined(test, ranks, i); break;
      case Collective::kReduceScatter: values[i] = combined(test, ranks, mine + i); break;
      case Collective::kBroadcast: values[i] = contribution(test.root, i, how); break;
      case Collective::kScatter: values[i] = contribution(test.root, mine + i, how); break;
      case Collective::kAllGather:
      case Collective::kGather: values[i] = contribution(from, in_block, how); break;
      case Collective::kAllToAll: values[i] = contribution(from, mine + in_block, how); break;
    }
  }
  return values;
}

/// A rank's buffers for a case, with poison around and in the output.
class Buffers {
 public:
  Buffers(const Case& test, int rank, int ranks)
      : input_(to_bytes(test.type, input_of(test, rank, ranks))),
        expected_(to_bytes(test.type, output_of(test, rank, ranks))) {
    const bool root = rank == test.root;
    const bool has_input = root || !only_root_has_input(test.what);
    has_output_ = root || !only_root_has_output(test.what);
    const size_t block = static_cast<size_t>(rank) * test.count * bytes_of(test.type);
    if (test.in_place && has_input && has_output_) {
      memory_.assign(std::max(input_.size(), expected_.size()) + 2 * kGuard, kPoison);
      const size_t in = kGuard + (has_n_outputs(test.what) ? block : 0);
      output_at_ = kGuard + (has_n_inputs(test.what) ? block : 0);
      std::copy(input_.begin(), input_.end(), memory_.begin() + static_cast<ptrdiff_t>(in));
      work_.input = memory_.data() + in;
    } else {
      memory_.assign(expected_.size() + 2 * kGuard, kPoison);
      output_at_ = kGuard;
      work_.input = has_input ? input_.data() : nullptr;
    }
    work_.output = has_output_ ? memory_.data() + output_at_ : nullptr;
    work_.what = test.what;
    work_.count = test.count;
    work_.type = test.type;
    work_.reduction = test.reduction;
    work_.root = test.root;
    work_.plan = {.algorithm = test.algorithm, .chunk = test.chunk};
    before_ = memory_;
  }

  const CollectiveWork& work() const { return work_; }

  void check() const {
    if (has_output_) {
      EXPECT_TRUE(std::equal(expected_.begin(), expected_.end(), memory_.data() + output_at_)) << "wrong result";
    }
    const size_t end = has_output_ ? output_at_ + expected_.size() : output_at_;
    EXPECT_EQ(std::memcmp(memory_.data(), before_.data(), output_at_), 0) << "written before the output";
    EXPECT_EQ(std::memcmp(memory_.data() + end, before_.data() + end, memory_.size() - end), 0)
        << "written behind the output";
  }

 private:
  std::vector<std::byte> input_;
  std::vector<std::byte> expected_;
  std::vector<std::byte> memory_;
  std::vector<std::byte> before_;
  size_t output_at_ = 0;
  bool has_output_ = true;
  CollectiveWork work_;
};

void run_cases(Team& team, const std::vector<Case>& cases) {
  team.run([&](int rank, Engine& engine) {
    for (const Case& test : cases) {
      SCOPED_TRACE("rank " + std::to_string(rank) + " of " + std::to_string(team.ranks()) + ": " + test.text());
      const Buffers buffers(test, rank, team.ranks());
      Team::run_launch(engine, Launch{.collectives = {buffers.work()}, .messages = {}});
      buffers.check();
      if (::testing::Test::HasFailure()) engine.rank().abort();
    }
  });
  EXPECT_EQ(team.failures(), std::vector<std::string>{});
}

struct Size {
  size_t count;
  size_t chunk;
};
constexpr Size kSizes[] = {{0, 16}, {1, 16}, {7, 16}, {64, 160}, {333, 16}, {1001, 160}, {5000, 1024}};
constexpr DataType kSizedTypes[] = {DataType::kInt32, DataType::kUint8, DataType::kFloat16, DataType::kFloat64};

std::vector<Case> sizes_of_every_algorithm(int ranks) {
  std::vector<Case> cases;
  algorithm::Table::for_each([&](auto entry) {
    for (const Size size : kSizes) {
      for (const bool in_place : {false, true}) {
        if (in_place && entry.row.what == Collective::kAllToAll) continue;
        Case test{.what = entry.row.what, .algorithm = entry.row.algorithm};
        test.type = kSizedTypes[cases.size() / 2 % std::size(kSizedTypes)];
        test.count = size.count;
        test.chunk = size.chunk;
        test.in_place = in_place;
        test.root = static_cast<int>(cases.size()) % ranks;
        cases.push_back(test);
      }
    }
  });
  return cases;
}

class Collectives : public ::testing::TestWithParam<std::tuple<int, Living>> {
 protected:
  static int ranks() { return std::get<0>(GetParam()); }
  static Living living() { return std::get<1>(GetParam()); }
};

TEST_P(Collectives, OfEveryAlgorithmAreExactAtEverySize) {
  Team team(ranks(), living());
  run_cases(team, sizes_of_every_algorithm(ranks()));
}

TEST_P(Collectives, ReduceEveryTypeWithEveryOperation) {
  Team team(ranks(), living());
  std::vector<Case> cases;
  for (int type = 0; type < kDataTypes; ++type) {
    for (int how = 0; how < kCombines; ++how) {
      for (const Algorithm algorithm : {Algorithm::kOneShot, Algorithm::kTwoShot, Algorithm::kRing, Algorithm::kTree}) {
        Case test{.what = Collective::kAllReduce, .algorithm = algorithm, .type = static_cast<DataType>(type)};
        test.count = 133;
        test.chunk = 50;
        test.reduction.combine = static_cast<Combine>(how);
        cases.push_back(test);
      }
    }
  }
  run_cases(team, cases);
}

TEST_P(Collectives, LargerThanAllSlotsTogether) {
  constexpr size_t small_queues = 16384;
  Team team(ranks(), living(), small_queues);
  std::vector<Case> cases;
  algorithm::Table::for_each([&](auto entry) {
    cases.push_back({.what = entry.row.what, .algorithm = entry.row.algorithm, .type = DataType::kUint8});
    cases.back().count = 70'001;
    cases.back().root = ranks() - 1;
  });
  run_cases(team, cases);
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<int, Living>>& info) {
  const Living living = std::get<1>(info.param);
  return std::to_string(std::get<0>(info.param)) + (living == Living::kTogether ? "Together"
                                                    : living == Living::kApart  ? "Apart"
                                                                                : "InPairs");
}
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives,
                         ::testing::Combine(::testing::Values(2, 3, 4, 5, 8),
                                            ::testing::Values(Living::kTogether, Living::kApart)),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(MixedRanks, Collectives,
                         ::testing::Combine(::testing::Values(5), ::testing::Values(Living::kInPairs)), name_of_case);

TEST(OneRank, CopiesOrReducesAlone) {
  Team team(1);
  std::vector<Case> cases;
  for (int what = 0; what < kCollectives; ++what) {
    for (const bool in_place : {false, true}) {
      cases.push_back({.what = static_cast<Collective>(what), .algorithm = Algorithm::kOneShot});
      cases.back().count = 20000;
      cases.back().in_place = in_place;
    }
  }
  run_cases(team, cases);
}

TEST(ManyRanks, Work) {
  Team team(17);
  std::vector<Case> cases;
  algorithm::Table::for_each([&](auto entry) {
    cases.push_back({.what = entry.row.what, .algorithm = entry.row.algorithm});
    cases.back().count = 1000;
    cases.back().chunk = 256;
    cases.back().root = 5;
  });
  run_cases(team, cases);
}

TEST(Groups, RunTheirCollectivesInOrder) {
  Team team(4, Living::kApart);
  team.run([&](int rank, Engine& engine) {
    std::vector<Buffers> buffers;
    Launch launch;
    for (size_t count = 1; count < 200; count += 13) {
      Case test{.what = Collective::kAllReduce, .algorithm = Algorithm::kTwoShot, .count = count};
      test.what = count % 2 == 0 ? Collective::kAllReduce : Collective::kBroadcast;
      buffers.emplace_back(test, rank, team.ranks());
      launch.collectives.push_back(buffers.back().work());
    }
    Team::run_launch(engine, launch);
    for (const Buffers& each : buffers) each.check();
  });
  EXPECT_EQ(team.failures(), std::vector<std::string>{});
}

}  // namespace
}  // namespace nitinol::cpu
