// Conversions of single elements.
#include "element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace nitinol::perf {
namespace {

uint64_t bits_of(const ElementType& type, const std::byte* in) {
  uint64_t bits = 0;
  std::memcpy(&bits, in, type.size);
  return bits;
}

uint64_t encoded(const char* type_name, double value) {
  const ElementType& type = *find_element_type(type_name);
  std::byte out[8] = {};
  encode_float(type, value, out);
  return bits_of(type, out);
}

TEST(Element, KnownFloatsHaveTheirBits) {
  EXPECT_EQ(encoded("half", 1.0), 0x3c00U);
  EXPECT_EQ(encoded("half", -65504.0), 0xfbffU);
  EXPECT_EQ(encoded("half", std::ldexp(1.0, -24)), 0x0001U);
  EXPECT_EQ(encoded("bfloat16", 1.0), 0x3f80U);
  EXPECT_EQ(encoded("bfloat16", -256.0), 0xc380U);
  EXPECT_EQ(encoded("f8e4m3", 448.0), 0x7eU);
  EXPECT_EQ(encoded("f8e4m3", 1.5), 0x3cU);
  EXPECT_EQ(encoded("f8e5m2", -57344.0), 0xfbU);
  EXPECT_EQ(encoded("float", 2.5), 0x40200000U);
}

TEST(Element, EverySmallFloatSurvivesDecodingAndEncoding) {
  for (const ElementType& type : all_element_types()) {
    if (type.kind != ElementKind::kFloat || type.size > 2) continue;
    for (uint64_t bits = 0; bits < 1ULL << (8 * type.size); ++bits) {
      std::byte in[8] = {};
      std::byte out[8] = {};
      encode_integer(type, bits, in);
      const double value = decode_float(type, in);
      if (!std::isfinite(value)) continue;
      encode_float(type, value, out);
      ASSERT_EQ(bits_of(type, out), bits) << type.name;
    }
  }
}

TEST(Element, IntegersKeepSignAndWidth) {
  for (const ElementType& type : all_element_types()) {
    if (type.kind == ElementKind::kFloat) continue;
    std::byte in[8] = {};
    encode_integer(type, ~0ULL, in);
    if (type.kind == ElementKind::kSigned) {
      EXPECT_EQ(decode_integer(type, in), -1) << type.name;
    } else {
      EXPECT_EQ(static_cast<uint64_t>(decode_integer(type, in)), ~0ULL >> (64 - 8 * type.size)) << type.name;
    }
  }
}

TEST(Element, IsFoundByNameAndAlias) {
  EXPECT_EQ(find_element_type("bf16")->type, ncclBfloat16);
  EXPECT_EQ(find_element_type("float8e5m2")->type, ncclFloat8e5m2);
  EXPECT_EQ(find_element_type("int")->type, ncclInt32);
  EXPECT_EQ(find_element_type("quadruple"), nullptr);
}

}  // namespace
}  // namespace nitinol::perf
