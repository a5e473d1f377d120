#include "elements.h"

#include <cstring>
#include <stdexcept>

namespace nitinol::testing {
namespace {

/// Calls run.template operator()<type>() for the type that a variable names.
template <typename Run>
auto with_type(ncclDataType_t type, const Run& run) {
  switch (static_cast<DataType>(type)) {
    case DataType::kInt8: return run.template operator()<DataType::kInt8>();
    case DataType::kUint8: return run.template operator()<DataType::kUint8>();
    case DataType::kInt32: return run.template operator()<DataType::kInt32>();
    case DataType::kUint32: return run.template operator()<DataType::kUint32>();
    case DataType::kInt64: return run.template operator()<DataType::kInt64>();
    case DataType::kUint64: return run.template operator()<DataType::kUint64>();
    case DataType::kFloat16: return run.template operator()<DataType::kFloat16>();
    case DataType::kFloat32: return run.template operator()<DataType::kFloat32>();
    case DataType::kFloat64: return run.template operator()<DataType::kFloat64>();
    case DataType::kBfloat16: return run.template operator()<DataType::kBfloat16>();
    case DataType::kFloat8E4m3: return run.template operator()<DataType::kFloat8E4m3>();
    case DataType::kFloat8E5m2: return run.template operator()<DataType::kFloat8E5m2>();
  }
  throw std::runtime_error("no such type");
}

uint32_t mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ x >> 16;
}

/// A float between 1/2 and 2 of either sign, or any integer.
template <DataType type>
typename Arithmetic<type>::Element value_from(uint32_t random) {
  using A = Arithmetic<type>;
  if constexpr (is_float(type)) {
    const double magnitude = 0.5 + 1.5 * (random >> 1) / static_cast<double>(1U << 31);
    return A::from_accumulator(static_cast<typename A::Accumulator>((random & 1U) != 0 ? magnitude : -magnitude));
  } else {
    return static_cast<typename A::Element>(random * 0x9e3779b97f4a7c15ULL);
  }
}

template <DataType type, Combine how>
Buffer reduce_as(bool average_it, const std::vector<Buffer>& inputs, const std::vector<uint64_t>& scalars) {
  using A = Arithmetic<type>;
  using Element = typename A::Element;
  Buffer result(inputs[0].size());
  for (size_t at = 0; at < result.size(); at += sizeof(Element)) {
    typename A::Accumulator sum{};
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      Element x;
      std::memcpy(&x, inputs[rank].data() + at, sizeof(x));
      if (!scalars.empty()) {
        Element scalar;
        std::memcpy(&scalar, &scalars[rank], sizeof(scalar));
        x = premultiply<type>(x, scalar);
      }
      sum = rank == 0 ? A::to_accumulator(x) : combine<how>(sum, A::to_accumulator(x));
    }
    if (average_it) sum = average(sum, static_cast<int>(inputs.size()));
    const Element rounded = A::from_accumulator(sum);
    std::memcpy(result.data() + at, &rounded, sizeof(rounded));
  }
  return result;
}

}  // namespace

size_t size_of(ncclDataType_t type) { return bytes_of(static_cast<DataType>(type)); }

Buffer make_input(ncclDataType_t type, size_t count, int rank, uint32_t seed) {
  Buffer buffer(count * size_of(type));
  with_type(type, [&]<DataType t>() {
    for (size_t i = 0; i < count; ++i) {
      const auto x =
          value_from<t>(mix(static_cast<uint32_t>(i) * 0x01000193U + static_cast<uint32_t>(rank) * 7919U + seed));
      std::memcpy(buffer.data() + i * sizeof(x), &x, sizeof(x));
    }
  });
  return buffer;
}

uint64_t make_scalar(ncclDataType_t type, int rank) {
  uint64_t bytes = 0;
  with_type(type, [&]<DataType t>() {
    using A = Arithmetic<t>;
    const auto x = A::from_accumulator(static_cast<typename A::Accumulator>(1 + rank % 3));
    std::memcpy(&bytes, &x, sizeof(x));
  });
  return bytes;
}

Buffer reduce(ncclDataType_t type, ncclRedOp_t op, const std::vector<Buffer>& inputs,
              const std::vector<uint64_t>& scalars) {
  return with_type(type, [&]<DataType t>() {
    switch (op) {
      case ncclProd: return reduce_as<t, Combine::kProduct>(false, inputs, scalars);
      case ncclMax: return reduce_as<t, Combine::kMax>(false, inputs, scalars);
      case ncclMin: return reduce_as<t, Combine::kMin>(false, inputs, scalars);
      case ncclAvg: return reduce_as<t, Combine::kSum>(true, inputs, scalars);
      default: return reduce_as<t, Combine::kSum>(false, inputs, scalars);
    }
  });
}

}  // namespace nitinol::testing
