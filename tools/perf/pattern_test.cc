// Inputs must make every reduction exact, in any order of summation, and no two blocks alike.
#include "pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace nitinol::perf {
namespace {

double float_at(const ElementType& type, const std::vector<std::byte>& block, size_t index) {
  return decode_float(type, block.data() + index * type.size);
}

bool representable(const ElementType& type, double value) {
  std::byte out[8] = {};
  encode_float(type, value, out);
  return decode_float(type, out) == value;
}

// Adds or multiplies the inputs of all ranks in the given order and expects each partial result to be exact.
void expect_exact(const ElementType& type, Reduction reduction, const std::vector<int>& order) {
  Pattern pattern(type, reduction, static_cast<int>(order.size()));
  for (size_t i = 0; i < kPatternPeriod; i += 61) {
    double partial = reduction == Reduction::kProd ? 1 : 0;
    for (const int rank : order) {
      const double x = float_at(type, pattern.input(rank), i);
      const int factor = reduction == Reduction::kMulSum ? mul_sum_factor(rank) : 1;
      partial = reduction == Reduction::kProd ? partial * x : partial + x * factor;
      ASSERT_TRUE(representable(type, partial)) << type.name << " " << reduction_name(reduction) << " " << partial;
    }
    ASSERT_EQ(partial, float_at(type, pattern.reduced(), i));
  }
}

TEST(Pattern, PartialResultsOfFloatsAreExactInAnyOrder) {
  for (const ElementType& type : all_element_types()) {
    if (type.kind != ElementKind::kFloat) continue;
    for (const int ranks : {1, 3, 8, 64}) {
      std::vector<int> order(static_cast<size_t>(ranks));
      std::iota(order.begin(), order.end(), 0);
      for (const Reduction reduction : {Reduction::kSum, Reduction::kProd, Reduction::kMulSum}) {
        expect_exact(type, reduction, order);
        expect_exact(type, reduction, {order.rbegin(), order.rend()});
      }
    }
  }
}

TEST(Pattern, EveryRankMattersSomewhereInEverySum) {
  for (const ElementType& type : all_element_types()) {
    const int ranks = 64;
    Pattern pattern(type, Reduction::kSum, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<std::byte>& input = pattern.input(rank);
      const bool silent = std::memcmp(input.data(), input.data() + type.size, input.size() - type.size) == 0;
      ASSERT_FALSE(silent) << type.name << " rank " << rank;
    }
  }
}

TEST(Pattern, AveragesOverOtherThanPowersOfTwoMayRoundButNotMore) {
  const ElementType& type = *find_element_type("float");
  EXPECT_TRUE(Pattern(type, Reduction::kAvg, 8).exact());
  EXPECT_TRUE(Pattern(*find_element_type("int32"), Reduction::kAvg, 3).exact());
  Pattern thirds(type, Reduction::kAvg, 3);
  EXPECT_FALSE(thirds.exact());
  double average = 0;
  for (int rank = 0; rank < 3; ++rank) average += float_at(type, thirds.input(rank), 0) / 3;
  std::byte got[4];
  encode_float(type, average, got);
  EXPECT_TRUE(thirds.acceptable(thirds.reduced(), 0, got));
  encode_float(type, average * 1.001, got);
  EXPECT_FALSE(thirds.acceptable(thirds.reduced(), 0, got));
}

TEST(Pattern, IntegersWrapAndCompareInTheirOwnSign) {
  for (const char* name : {"int32", "uint32"}) {
    const ElementType& type = *find_element_type(name);
    Pattern largest(type, Reduction::kMax, 2);
    for (size_t i = 0; i < 100; ++i) {
      const auto at = [&](const std::vector<std::byte>& block) { return decode_integer(type, block.data() + i * 4); };
      EXPECT_EQ(at(largest.reduced()), std::max(at(largest.input(0)), at(largest.input(1)))) << name;
    }
  }
}

TEST(Pattern, AveragesOfIntegersDoNotOverflowAnyPartialSum) {
  for (const ElementType& type : all_element_types()) {
    if (type.kind == ElementKind::kFloat) continue;
    for (const int ranks : {1, 3, 64}) {
      Pattern pattern(type, Reduction::kAvg, ranks);
      const long double most = std::ldexp(1.0L, static_cast<int>(8 * type.size) - (type.kind == ElementKind::kSigned));
      for (size_t i = 0; i < kPatternPeriod; i += 61) {
        long double sum = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const long long value = decode_integer(type, pattern.input(rank).data() + i * type.size);
          const bool is_signed = type.kind == ElementKind::kSigned;
          sum += std::fabs(is_signed ? static_cast<long double>(value) : static_cast<unsigned long long>(value));
        }
        ASSERT_LT(sum, most) << type.name << " " << ranks;
      }
    }
  }
}

TEST(Pattern, StoreHandsOutTheSamePatternAgain) {
  PatternStore store;
  const ElementType& type = *find_element_type("float");
  const auto first = store.get(type, Reduction::kSum, 4);
  EXPECT_EQ(store.get(type, Reduction::kSum, 4), first);
  EXPECT_NE(store.get(type, Reduction::kSum, 5), first);
}

}  // namespace
}  // namespace nitinol::perf
