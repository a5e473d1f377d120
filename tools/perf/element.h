// The data types of the API as the benchmark sees them: name, size, and conversion of one element to and from double.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <span>
#include <string>

namespace nitinol::perf {

enum class ElementKind { kSigned, kUnsigned, kFloat };

struct ElementType {
  ncclDataType_t type;
  const char* name;
  size_t size;
  ElementKind kind;
  int exponent_bits;  // floats only
  int mantissa_bits;
};

std::span<const ElementType> all_element_types();

/// Finds a type by name (float, half, bf16 ... with the usual aliases); null when there is none.
const ElementType* find_element_type(const std::string& name);

/// Writes `value`, which the float type can represent exactly.
void encode_float(const ElementType& type, double value, std::byte* out);
double decode_float(const ElementType& type, const std::byte* in);

/// Integers travel as 64 bits; storing keeps the low ones, loading extends the sign.
void encode_integer(const ElementType& type, unsigned long long bits, std::byte* out);
long long decode_integer(const ElementType& type, const std::byte* in);

/// The element as text, for messages.
std::string element_text(const ElementType& type, const std::byte* in);

}  // namespace nitinol::perf
