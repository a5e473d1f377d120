// The arithmetic of single elements, against definitions that are slower and more obvious.
#include "model/arithmetic.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace nitinol {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The value of a small float by the definition of its format.
double value_of(uint32_t bits, int mantissa_bits, int bias, int width) {
  const uint32_t mantissa = bits & ((1U << mantissa_bits) - 1);
  const int exponent = static_cast<int>((bits & ((1U << (width - 1)) - 1)) >> mantissa_bits);
  const double sign = bits >> (width - 1) != 0 ? -1.0 : 1.0;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1U << mantissa_bits), exponent - bias - mantissa_bits);
}

/// Checks widening and rounding of the positive numbers of a format, at every number and around every midpoint.
template <class Format>
void check_numbers(uint32_t largest, int mantissa_bits, int bias, int width) {
  for (uint32_t bits = 0; bits <= largest; ++bits) {
    using Bits = typename Format::Element;
    const double value = value_of(bits, mantissa_bits, bias, width);
    const auto negative = static_cast<Bits>(bits | 1U << (width - 1));
    ASSERT_EQ(Format::widen(static_cast<Bits>(bits)), static_cast<float>(value));
    ASSERT_EQ(Format::widen(negative), static_cast<float>(-value));
    ASSERT_EQ(Format::round(static_cast<float>(value)), bits);
    ASSERT_EQ(Format::round(static_cast<float>(-value)), negative);
    if (bits == largest) break;
    const auto middle = static_cast<float>((value + value_of(bits + 1, mantissa_bits, bias, width)) / 2);
    ASSERT_EQ(Format::round(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(Format::round(std::nextafter(middle, 0.0F)), bits);
    ASSERT_EQ(Format::round(std::nextafter(middle, kInfinity)), bits + 1);
  }
}

TEST(Arithmetic, Float16WidensAndRoundsToNearestEven) { check_numbers<Float16>(0x7bff, 10, 15, 16); }
TEST(Arithmetic, Bfloat16WidensAndRoundsToNearestEven) { check_numbers<Bfloat16>(0x7f7f, 7, 127, 16); }
TEST(Arithmetic, Float8E4m3WidensAndRoundsToNearestEven) { check_numbers<Float8E4m3>(0x7e, 3, 7, 8); }
TEST(Arithmetic, Float8E5m2WidensAndRoundsToNearestEven) { check_numbers<Float8E5m2>(0x7b, 2, 15, 8); }

TEST(Arithmetic, SixteenBitFloatsOverflowToInfinity) {
  EXPECT_EQ(Float16::round(65519.0F), 0x7bff);
  EXPECT_EQ(Float16::round(65520.0F), 0x7c00);
  EXPECT_EQ(Float16::round(-kInfinity), 0xfc00);
  EXPECT_EQ(Float16::widen(0x7c00), kInfinity);
  EXPECT_EQ(Bfloat16::round(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(Bfloat16::widen(0xff80), -kInfinity);
}

TEST(Arithmetic, EightBitFloatsSaturate) {
  EXPECT_EQ(Float8E4m3::round(1e9F), 0x7e);
  EXPECT_EQ(Float8E4m3::round(-kInfinity), 0xfe);
  EXPECT_EQ(Float8E5m2::round(1e9F), 0x7b);
  EXPECT_EQ(Float8E5m2::round(kInfinity), 0x7b);
  EXPECT_EQ(Float8E5m2::widen(0x7c), kInfinity);
}

TEST(Arithmetic, EveryNanBecomesTheOneNan) {
  const float nan = std::bit_cast<float>(0xffa00001U);
  EXPECT_EQ(Float16::round(nan), 0x7fff);
  EXPECT_EQ(Bfloat16::round(nan), 0x7fff);
  EXPECT_EQ(Float8E4m3::round(nan), 0x7f);
  EXPECT_EQ(Float8E5m2::round(nan), 0x7f);
  EXPECT_EQ(std::bit_cast<uint32_t>(Arithmetic<DataType::kFloat32>::from_accumulator(nan)), 0x7fffffffU);
  EXPECT_EQ(std::bit_cast<uint64_t>(Arithmetic<DataType::kFloat64>::from_accumulator(-std::nan("7"))),
            0x7fffffffffffffffULL);
  for (const uint16_t bits : {0x7c01, 0xffff}) EXPECT_TRUE(std::isnan(Float16::widen(bits)));
  for (const uint16_t bits : {0x7f81, 0xffff}) EXPECT_TRUE(std::isnan(Bfloat16::widen(bits)));
  for (const uint8_t bits : {0x7f, 0xff}) EXPECT_TRUE(std::isnan(Float8E4m3::widen(bits)));
  for (const uint8_t bits : {0x7d, 0xff}) EXPECT_TRUE(std::isnan(Float8E5m2::widen(bits)));
}

TEST(Arithmetic, ExtremesPreferNumbersAndOrderZeros) {
  const float nan = std::nanf("");
  EXPECT_EQ(combine<Combine::kMax>(nan, -kInfinity), -kInfinity);
  EXPECT_EQ(combine<Combine::kMax>(1.0F, nan), 1.0F);
  EXPECT_EQ(combine<Combine::kMin>(nan, kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(combine<Combine::kMin>(nan, nan)));
  EXPECT_FALSE(std::signbit(combine<Combine::kMax>(-0.0F, 0.0F)));
  EXPECT_FALSE(std::signbit(combine<Combine::kMax>(0.0F, -0.0F)));
  EXPECT_TRUE(std::signbit(combine<Combine::kMin>(-0.0, 0.0)));
  EXPECT_TRUE(std::signbit(combine<Combine::kMin>(0.0, -0.0)));
  EXPECT_EQ(combine<Combine::kMax>(-2.0, -1.0), -1.0);
  EXPECT_EQ(combine<Combine::kMin>(-2, 1), -2);
}

TEST(Arithmetic, IntegersWrap) {
  EXPECT_EQ(combine<Combine::kSum>(int8_t{127}, int8_t{1}), -128);
  EXPECT_EQ(combine<Combine::kProduct>(uint8_t{200}, uint8_t{2}), 144);
  EXPECT_EQ(combine<Combine::kSum>(std::numeric_limits<int64_t>::max(), int64_t{1}),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(combine<Combine::kProduct>(int32_t{-65536}, int32_t{65536}), 0);
}

TEST(Arithmetic, AveragesOfIntegersTruncate) {
  EXPECT_EQ(average(int8_t{-7}, 2), -3);
  EXPECT_EQ(average(int8_t{100}, 200), 0);
  EXPECT_EQ(average(~uint64_t{0}, 2), ~uint64_t{0} / 2);
  EXPECT_EQ(average(std::numeric_limits<int64_t>::min(), 1), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(average(1.0F, 3), 1.0F / 3.0F);
}

TEST(Arithmetic, ScalarsRoundTheirProducts) {
  EXPECT_EQ(premultiply<DataType::kFloat16>(Float16::round(1.0F / 3.0F), Float16::round(3.0F)),
            Float16::round(Float16::widen(Float16::round(1.0F / 3.0F)) * 3.0F));
  EXPECT_EQ(premultiply<DataType::kInt8>(100, 3), 44);
  EXPECT_EQ(premultiply<DataType::kFloat64>(1.5, 2.0), 3.0);
}

}  // namespace
}  // namespace nitinol
