// Every variant of the array functions gives the bits of model/arithmetic.h.
#include "executor/cpu/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "model/arithmetic.h"

namespace nitinol::cpu {
namespace {

/// A small generator of our own: the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    const uint64_t x = state_ ^ (state_ >> 29);
    return x * 0x9e3779b97f4a7c15ULL >> 8 ^ x;
  }

 private:
  uint64_t state_;
};

/// Elements by their bits: random ones, and often the special ones of the type's format.
template <DataType type>
std::vector<typename Arithmetic<type>::Element> some_elements(size_t count, uint64_t seed) {
  using Element = typename Arithmetic<type>::Element;
  Random random(seed);
  std::vector<Element> elements(count);
  constexpr int exponent_bits = type == DataType::kFloat64      ? 11
                                : type == DataType::kFloat16    ? 5
                                : type == DataType::kFloat8E4m3 ? 4
                                : type == DataType::kFloat8E5m2 ? 5
                                                                : 8;
  constexpr int bits = 8 * static_cast<int>(sizeof(Element));
  for (Element& element : elements) {
    uint64_t x = random.next();
    if constexpr (is_float(type)) {
      constexpr uint64_t exponent = ((uint64_t{1} << exponent_bits) - 1) << (bits - 1 - exponent_bits);
      switch (random.next() % 8) {
        case 0: x |= exponent; break;                     // NaN or infinite
        case 1: x = (x << (bits - 1)) | exponent; break;  // infinite (e4m3: a number)
        case 2: x &= ~exponent; break;                    // subnormal
        case 3: x = x << (bits - 1); break;               // zero
        case 4:                                           // near one
          x = (x & ~exponent) | (exponent >> 1 & exponent);
          break;
        default: break;
      }
    }
    std::memcpy(&element, &x, sizeof element);
  }
  return elements;
}

struct Case {
  DataType type;
  Combine how;
  bool averages = false;
};

template <DataType type, Combine how>
typename Arithmetic<type>::Element expected_element(
    const std::vector<std::vector<typename Arithmetic<type>::Element>>& sources, size_t i, int average_ranks) {
  using A = Arithmetic<type>;
  auto sum = A::to_accumulator(sources[0][i]);
  for (size_t s = 1; s < sources.size(); ++s) sum = combine<how>(sum, A::to_accumulator(sources[s][i]));
  if (average_ranks > 0) sum = average(sum, average_ranks);
  return A::from_accumulator(sum);
}

template <class Element>
::testing::AssertionResult same_bits(const std::vector<Element>& expected, const Element* got) {
  if (expected.empty() || std::memcmp(expected.data(), got, expected.size() * sizeof(Element)) == 0)
    return ::testing::AssertionSuccess();
  size_t i = 0;
  while (std::memcmp(&expected[i], &got[i], sizeof(Element)) == 0) ++i;
  uint64_t want = 0;
  uint64_t have = 0;
  std::memcpy(&want, &expected[i], sizeof(Element));
  std::memcpy(&have, &got[i], sizeof(Element));
  return ::testing::AssertionFailure() << "element " << i << " is 0x" << std::hex << have << ", should be 0x" << want;
}

template <DataType type, Combine how>
void check_combine(bool averages) {
  using Element = typename Arithmetic<type>::Element;
  const int type_index = static_cast<int>(type);
  for (const size_t count : {0, 1, 3, 15, 16, 17, 64, 65, 127, 259, 1000}) {
    for (const int source_count : {1, 2, 3, 7}) {
      std::vector<std::vector<Element>> sources;
      std::vector<std::vector<Element>> shifted;  // as above, at addresses aligned to the element only
      for (int s = 0; s < source_count; ++s) {
        sources.push_back(some_elements<type>(count, 17 * count + static_cast<size_t>(s)));
        shifted.emplace_back(count + 8);
        std::copy(sources.back().begin(), sources.back().end(), shifted.back().begin() + 1 + s);
      }
      const int ranks = averages ? source_count + 2 : 0;
      std::vector<Element> expected(count);
      for (size_t i = 0; i < count; ++i) expected[i] = expected_element<type, how>(sources, i, ranks);
      std::vector<const void*> pointers;
      for (int s = 0; s < source_count; ++s) pointers.push_back(shifted[static_cast<size_t>(s)].data() + 1 + s);
      for (const ReduceVariant& variant : reduce_variants()) {
        SCOPED_TRACE(std::string(variant.name) + " type " + std::to_string(type_index) + " op " +
                     std::to_string(static_cast<int>(how)) + " count " + std::to_string(count) + " sources " +
                     std::to_string(source_count));
        const ReduceFunction reduce =
            averages ? variant.table->average[type_index] : variant.table->combine[static_cast<int>(how)][type_index];
        std::vector<Element> into(count + 3, Element{});
        reduce(into.data() + 1, pointers.data(), source_count, count, ranks);
        ASSERT_TRUE(same_bits(expected, into.data() + 1));
        EXPECT_EQ(into[0], Element{});
        EXPECT_EQ(into[count + 1], Element{});
      }
    }
  }
}

template <DataType type>
void check_type() {
  check_combine<type, Combine::kSum>(false);
  check_combine<type, Combine::kProduct>(false);
  check_combine<type, Combine::kMax>(false);
  check_combine<type, Combine::kMin>(false);
  check_combine<type, Combine::kSum>(true);
}

template <DataType type>
void check_premultiply() {
  using Element = typename Arithmetic<type>::Element;
  for (const size_t count : {1, 17, 300}) {
    const std::vector<Element> scalars = some_elements<type>(9, 5);
    const std::vector<Element> from = some_elements<type>(count, 4);
    for (const Element& scalar : scalars) {
      std::vector<Element> expected(count);
      for (size_t i = 0; i < count; ++i) expected[i] = premultiply<type>(from[i], scalar);
      for (const ReduceVariant& variant : reduce_variants()) {
        SCOPED_TRACE(variant.name);
        std::vector<Element> into = from;  // in place
        variant.table->premultiply[static_cast<int>(type)](into.data(), into.data(), &scalar, count);
        ASSERT_TRUE(same_bits(expected, into.data()));
      }
    }
  }
}

template <class Visit, size_t... index>
void for_each_type(Visit visit, std::index_sequence<index...>) {
  (visit.template operator()<static_cast<DataType>(index)>(), ...);
}

TEST(Reduce, EveryVariantGivesTheBitsOfTheScalarArithmetic) {
  for_each_type([]<DataType type>() { check_type<type>(); }, std::make_index_sequence<kDataTypes>());
}

TEST(Reduce, EveryVariantMultipliesByAScalarLikeTheScalarArithmetic) {
  for_each_type([]<DataType type>() { check_premultiply<type>(); }, std::make_index_sequence<kDataTypes>());
}

TEST(Reduce, ConvertsEveryElementOfTheSmallFormats) {
  for (const ReduceVariant& variant : reduce_variants()) {
    std::vector<uint16_t> all(65536);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
    for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
      std::vector<uint16_t> expected(all.size());
      for (size_t i = 0; i < all.size(); ++i) {
        expected[i] = type == DataType::kFloat16 ? Float16::round(Float16::widen(all[i]))
                                                 : Bfloat16::round(Bfloat16::widen(all[i]));
      }
      std::vector<uint16_t> into(all.size());
      const void* source = all.data();
      variant.table->combine[0][static_cast<int>(type)](into.data(), &source, 1, all.size(), 1);
      EXPECT_TRUE(same_bits(expected, into.data())) << variant.name;
    }
  }
}

TEST(Reduce, InPlaceOverAnySource) {
  for (const ReduceVariant& variant : reduce_variants()) {
    for (const size_t target : {0, 1, 2}) {
      std::vector<std::vector<float>> sources(3, std::vector<float>(77));
      for (size_t i = 0; i < 77; ++i) {
        for (size_t s = 0; s < 3; ++s) sources[s][i] = static_cast<float>(i * (s + 1));
      }
      const std::array<const void*, 3> pointers{sources[0].data(), sources[1].data(), sources[2].data()};
      variant.table->combine[0][static_cast<int>(DataType::kFloat32)](sources[target].data(), pointers.data(), 3, 77,
                                                                      3);
      for (size_t i = 0; i < 77; ++i) ASSERT_EQ(sources[target][i], static_cast<float>(6 * i));
    }
  }
}

}  // namespace
}  // namespace nitinol::cpu
