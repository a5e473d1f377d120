// Conversions of single elements. Small floats are handled by one routine for all formats: sign, exponent, mantissa.
#include "element.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>

namespace nitinol::perf {
namespace {

constexpr auto kSigned = ElementKind::kSigned;
constexpr auto kUnsigned = ElementKind::kUnsigned;
constexpr auto kFloat = ElementKind::kFloat;

constexpr std::array<ElementType, 12> kTypes{{
    {ncclInt8, "int8", 1, kSigned, 0, 0},
    {ncclUint8, "uint8", 1, kUnsigned, 0, 0},
    {ncclInt32, "int32", 4, kSigned, 0, 0},
    {ncclUint32, "uint32", 4, kUnsigned, 0, 0},
    {ncclInt64, "int64", 8, kSigned, 0, 0},
    {ncclUint64, "uint64", 8, kUnsigned, 0, 0},
    {ncclFloat16, "half", 2, kFloat, 5, 10},
    {ncclFloat32, "float", 4, kFloat, 8, 23},
    {ncclFloat64, "double", 8, kFloat, 11, 52},
    {ncclBfloat16, "bfloat16", 2, kFloat, 8, 7},
    {ncclFloat8e4m3, "f8e4m3", 1, kFloat, 4, 3},
    {ncclFloat8e5m2, "f8e5m2", 1, kFloat, 5, 2},
}};

struct Alias {
  const char* name;
  ncclDataType_t type;
};

constexpr std::array<Alias, 12> kAliases{{
    {"char", ncclInt8},
    {"int", ncclInt32},
    {"float16", ncclFloat16},
    {"fp16", ncclFloat16},
    {"float32", ncclFloat32},
    {"fp32", ncclFloat32},
    {"float64", ncclFloat64},
    {"bf16", ncclBfloat16},
    {"fp8_e4m3", ncclFloat8e4m3},
    {"fp8_e5m2", ncclFloat8e5m2},
    {"float8e4m3", ncclFloat8e4m3},
    {"float8e5m2", ncclFloat8e5m2},
}};

// Formats of up to 16 bits. The value is exact by contract, so bits that do not fit are simply not there.
uint16_t pack_small_float(const ElementType& type, double value) {
  const int sign = std::signbit(value) ? 1 : 0;
  const int bias = (1 << (type.exponent_bits - 1)) - 1;
  const int sign_shift = type.exponent_bits + type.mantissa_bits;
  if (value == 0) return static_cast<uint16_t>(sign << sign_shift);
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  int biased = exponent - 1 + bias;
  double mantissa = fraction * 2 - 1;
  if (biased <= 0) {  // subnormal: no hidden one
    mantissa = std::ldexp(fraction * 2, biased - 1);
    biased = 0;
  }
  const int bits = static_cast<int>(std::ldexp(mantissa, type.mantissa_bits));
  return static_cast<uint16_t>((sign << sign_shift) | (biased << type.mantissa_bits) | bits);
}

double unpack_small_float(const ElementType& type, unsigned bits) {
  const int bias = (1 << (type.exponent_bits - 1)) - 1;
  const unsigned top = (1U << type.exponent_bits) - 1;
  const unsigned mantissa = bits & ((1U << type.mantissa_bits) - 1);
  const unsigned exponent = (bits >> type.mantissa_bits) & top;
  const bool negative = ((bits >> (type.exponent_bits + type.mantissa_bits)) & 1U) != 0;
  double magnitude = 0;
  if (exponent == top && type.type == ncclFloat8e4m3 && mantissa == 7) {
    magnitude = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == top && type.type != ncclFloat8e4m3) {
    magnitude = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, 1 - bias - type.mantissa_bits);
  } else {
    magnitude =
        std::ldexp(mantissa + (1U << type.mantissa_bits), static_cast<int>(exponent) - bias - type.mantissa_bits);
  }
  return negative ? -magnitude : magnitude;
}

template <typename T>
T load(const std::byte* in) {
  T value;
  std::memcpy(&value, in, sizeof(T));
  return value;
}

}  // namespace

std::span<const ElementType> all_element_types() { return kTypes; }

const ElementType* find_element_type(const std::string& name) {
  for (const ElementType& type : kTypes) {
    if (name == type.name) return &type;
  }
  for (const Alias& alias : kAliases) {
    if (name == alias.name) return &kTypes.at(static_cast<size_t>(alias.type));
  }
  return nullptr;
}

void encode_float(const ElementType& type, double value, std::byte* out) {
  if (type.size == 8) {
    std::memcpy(out, &value, 8);
  } else if (type.size == 4) {
    const float narrow = static_cast<float>(value);
    std::memcpy(out, &narrow, 4);
  } else {
    const uint16_t bits = pack_small_float(type, value);
    std::memcpy(out, &bits, type.size);  // little-endian: the low byte comes first
  }
}

double decode_float(const ElementType& type, const std::byte* in) {
  if (type.size == 8) return load<double>(in);
  if (type.size == 4) return load<float>(in);
  return unpack_small_float(type, type.size == 2 ? load<uint16_t>(in) : load<uint8_t>(in));
}

void encode_integer(const ElementType& type, unsigned long long bits, std::byte* out) {
  std::memcpy(out, &bits, type.size);
}

long long decode_integer(const ElementType& type, const std::byte* in) {
  const bool is_signed = type.kind == kSigned;
  if (type.size == 1) return is_signed ? load<int8_t>(in) : load<uint8_t>(in);
  if (type.size == 4) return is_signed ? static_cast<long long>(load<int32_t>(in)) : load<uint32_t>(in);
  return load<long long>(in);
}

std::string element_text(const ElementType& type, const std::byte* in) {
  if (type.kind == kFloat) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", decode_float(type, in));
    return text;
  }
  if (type.kind == kUnsigned) return std::to_string(static_cast<unsigned long long>(decode_integer(type, in)));
  return std::to_string(decode_integer(type, in));
}

}  // namespace nitinol::perf
