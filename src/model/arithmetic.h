// What reductions do to single elements, as host-and-device code: the one definition that every executor must match bit
// for bit. Executors may use vector or special instructions that give the same bits.
//
// Rules
// - 16- and 8-bit floats are widened to fp32 (exactly), combined there and rounded once at the end, to nearest even.
//   Beyond the largest number, fp16 and bf16 become infinite; fp8 saturates to its largest finite number, also from
//   infinity (as the constructors of __nv_fp8_e4m3 and __nv_fp8_e5m2 do).
// - A NaN that comes out of a reduction has all bits set but the sign, whatever NaNs went in: GPUs make this one.
//   A block that is only moved keeps its bits.
// - Max and min: a number beats NaN, -0 is less than +0; so they are associative and commutative.
// - Integers wrap in their own width. Averages divide the final sum: floats truly, integers towards zero.
// - A scalar multiplies in the accumulation type, and the product is rounded to the element type before it takes part.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "model/types.h"

namespace nitinol {

namespace exact {

// One operation, one rounding: never fused with a neighbour, whatever the compiler's settings for device code are.
#if defined(__CUDA_ARCH__)
NITINOL_HOST_DEVICE float add(float a, float b) { return __fadd_rn(a, b); }
NITINOL_HOST_DEVICE float multiply(float a, float b) { return __fmul_rn(a, b); }
NITINOL_HOST_DEVICE float divide(float a, float b) { return __fdiv_rn(a, b); }
NITINOL_HOST_DEVICE double add(double a, double b) { return __dadd_rn(a, b); }
NITINOL_HOST_DEVICE double multiply(double a, double b) { return __dmul_rn(a, b); }
NITINOL_HOST_DEVICE double divide(double a, double b) { return __ddiv_rn(a, b); }
#else
NITINOL_HOST_DEVICE float add(float a, float b) { return a + b; }
NITINOL_HOST_DEVICE float multiply(float a, float b) { return a * b; }
NITINOL_HOST_DEVICE float divide(float a, float b) { return a / b; }
NITINOL_HOST_DEVICE double add(double a, double b) { return a + b; }
NITINOL_HOST_DEVICE double multiply(double a, double b) { return a * b; }
NITINOL_HOST_DEVICE double divide(double a, double b) { return a / b; }
#endif

NITINOL_HOST_DEVICE constexpr bool is_nan(float x) { return (std::bit_cast<uint32_t>(x) & 0x7fffffffU) > 0x7f800000U; }
NITINOL_HOST_DEVICE constexpr bool is_nan(double x) {
  return (std::bit_cast<uint64_t>(x) & 0x7fffffffffffffffULL) > 0x7ff0000000000000ULL;
}

/// Orders numbers as the reals with -0 < +0; meaningless for NaN.
NITINOL_HOST_DEVICE constexpr int32_t order_key(float x) {
  const int32_t bits = std::bit_cast<int32_t>(x);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}
NITINOL_HOST_DEVICE constexpr int64_t order_key(double x) {
  const int64_t bits = std::bit_cast<int64_t>(x);
  return bits < 0 ? bits ^ 0x7fffffffffffffffLL : bits;
}

template <class Float>
NITINOL_HOST_DEVICE constexpr Float maximum(Float a, Float b) {
  if (is_nan(a)) return b;
  if (is_nan(b)) return a;
  return order_key(a) < order_key(b) ? b : a;
}
template <class Float>
NITINOL_HOST_DEVICE constexpr Float minimum(Float a, Float b) {
  if (is_nan(a)) return b;
  if (is_nan(b)) return a;
  return order_key(b) < order_key(a) ? b : a;
}

}  // namespace exact

/// A binary float format of 8 or 16 bits: sign, exponent, mantissa.
template <class Bits, int kMantissa, int kBias, Bits kNan, Bits kOverflow>
struct SmallFloat {
  using Element = Bits;
  static constexpr int kSignShift = 8 * static_cast<int>(sizeof(Bits)) - 1;
  static constexpr uint32_t kMagnitude = (1U << kSignShift) - 1;  ///< all bits but the sign
  /// From here on, as bits of a positive fp32, numbers are normal in the small format.
  static constexpr uint32_t kLeastNormal = static_cast<uint32_t>(128 - kBias) << 23;
  static constexpr bool kNarrowerRange = kBias != 127;  ///< bf16 shares its exponents with fp32, subnormals included

  NITINOL_HOST_DEVICE static constexpr Bits round(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude > 0x7f800000U) return kNan;
    const uint32_t sign = bits >> 31 << kSignShift;
    uint32_t rounded = 0;
    if (kNarrowerRange && magnitude < kLeastNormal) {
      // The last bit of `anchor` weighs as much as the smallest subnormal, so that the addition rounds there.
      constexpr uint32_t anchor = static_cast<uint32_t>(127 + 24 - kBias - kMantissa) << 23;
      const float sum = exact::add(std::bit_cast<float>(magnitude), std::bit_cast<float>(anchor));
      rounded = std::bit_cast<uint32_t>(sum) - anchor;
    } else {
      constexpr int shift = 23 - kMantissa;
      const uint32_t odd = magnitude >> shift & 1U;
      rounded = (magnitude + (1U << (shift - 1)) - 1 + odd) >> shift;
      rounded -= static_cast<uint32_t>(127 - kBias) << kMantissa;
      if (rounded > kOverflow) rounded = kOverflow;
    }
    return static_cast<Bits>(sign | rounded);
  }

  NITINOL_HOST_DEVICE static constexpr float widen(Bits element) {
    const uint32_t magnitude = element & kMagnitude;
    const uint32_t sign = static_cast<uint32_t>(element >> kSignShift) << 31;
    uint32_t wide = 0;
    if (is_special(magnitude)) {
      wide = is_infinite(magnitude) ? 0x7f800000U : 0x7fffffffU;
    } else if (kNarrowerRange && magnitude >> kMantissa == 0) {
      constexpr uint32_t least = static_cast<uint32_t>(128 - kBias - kMantissa) << 23;
      wide = std::bit_cast<uint32_t>(exact::multiply(static_cast<float>(magnitude), std::bit_cast<float>(least)));
    } else {
      wide = (magnitude << (23 - kMantissa)) + (static_cast<uint32_t>(127 - kBias) << 23);
    }
    return std::bit_cast<float>(sign | wide);
  }

 private:
  static constexpr bool kHasInfinity = kMantissa != 3;  // e4m3 spends that exponent on numbers, and one pattern on NaN
  static constexpr uint32_t kInfinity = kMagnitude >> kMantissa << kMantissa;
  NITINOL_HOST_DEVICE static constexpr bool is_special(uint32_t magnitude) {
    return kHasInfinity ? magnitude >= kInfinity : magnitude == kNan;
  }
  NITINOL_HOST_DEVICE static constexpr bool is_infinite(uint32_t magnitude) {
    return kHasInfinity && magnitude == kInfinity;
  }
};

using Float16 = SmallFloat<uint16_t, 10, 15, 0x7fff, 0x7c00>;
using Bfloat16 = SmallFloat<uint16_t, 7, 127, 0x7fff, 0x7f80>;
using Float8E4m3 = SmallFloat<uint8_t, 3, 7, 0x7f, 0x7e>;
using Float8E5m2 = SmallFloat<uint8_t, 2, 15, 0x7f, 0x7b>;

/// Element arithmetic of 16- and 8-bit floats.
template <class Format>
struct SmallFloatArithmetic {
  using Element = typename Format::Element;
  using Accumulator = float;
  NITINOL_HOST_DEVICE static constexpr float to_accumulator(Element x) { return Format::widen(x); }
  NITINOL_HOST_DEVICE static constexpr Element from_accumulator(float x) { return Format::round(x); }
};

/// Element arithmetic of fp32 and fp64.
template <class Float>
struct WideFloatArithmetic {
  using Element = Float;
  using Accumulator = Float;
  using Bits = std::conditional_t<sizeof(Float) == 4, uint32_t, uint64_t>;
  NITINOL_HOST_DEVICE static constexpr Float to_accumulator(Float x) { return x; }
  NITINOL_HOST_DEVICE static constexpr Float from_accumulator(Float x) {
    return exact::is_nan(x) ? std::bit_cast<Float>(static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1)) : x;
  }
};

/// Element arithmetic of integers.
template <class Integer>
struct IntegerArithmetic {
  using Element = Integer;
  using Accumulator = Integer;
  NITINOL_HOST_DEVICE static constexpr Integer to_accumulator(Integer x) { return x; }
  NITINOL_HOST_DEVICE static constexpr Integer from_accumulator(Integer x) { return x; }
};

template <DataType type>
struct ArithmeticOf;
template <>
struct ArithmeticOf<DataType::kInt8> {
  using Type = IntegerArithmetic<int8_t>;
};
template <>
struct ArithmeticOf<DataType::kUint8> {
  using Type = IntegerArithmetic<uint8_t>;
};
template <>
struct ArithmeticOf<DataType::kInt32> {
  using Type = IntegerArithmetic<int32_t>;
};
template <>
struct ArithmeticOf<DataType::kUint32> {
  using Type = IntegerArithmetic<uint32_t>;
};
template <>
struct ArithmeticOf<DataType::kInt64> {
  using Type = IntegerArithmetic<int64_t>;
};
template <>
struct ArithmeticOf<DataType::kUint64> {
  using Type = IntegerArithmetic<uint64_t>;
};
template <>
struct ArithmeticOf<DataType::kFloat16> {
  using Type = SmallFloatArithmetic<Float16>;
};
template <>
struct ArithmeticOf<DataType::kFloat32> {
  using Type = WideFloatArithmetic<float>;
};
template <>
struct ArithmeticOf<DataType::kFloat64> {
  using Type = WideFloatArithmetic<double>;
};
template <>
struct ArithmeticOf<DataType::kBfloat16> {
  using Type = SmallFloatArithmetic<Bfloat16>;
};
template <>
struct ArithmeticOf<DataType::kFloat8E4m3> {
  using Type = SmallFloatArithmetic<Float8E4m3>;
};
template <>
struct ArithmeticOf<DataType::kFloat8E5m2> {
  using Type = SmallFloatArithmetic<Float8E5m2>;
};

/// Element and Accumulator types of a data type with to_accumulator() and from_accumulator().
template <DataType type>
using Arithmetic = typename ArithmeticOf<type>::Type;

/// a and b combined, in that order.
template <Combine how, class Accumulator>
NITINOL_HOST_DEVICE constexpr Accumulator combine(Accumulator a, Accumulator b) {
  if constexpr (std::is_floating_point_v<Accumulator>) {
    if constexpr (how == Combine::kSum) return exact::add(a, b);
    if constexpr (how == Combine::kProduct) return exact::multiply(a, b);
    if constexpr (how == Combine::kMax) return exact::maximum(a, b);
    if constexpr (how == Combine::kMin) return exact::minimum(a, b);
  } else {
    if constexpr (how == Combine::kSum) {
      return static_cast<Accumulator>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    }
    if constexpr (how == Combine::kProduct) {
      return static_cast<Accumulator>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    }
    if constexpr (how == Combine::kMax) return a < b ? b : a;
    if constexpr (how == Combine::kMin) return b < a ? b : a;
  }
}

/// The final sum of `ranks` contributions made an average, before it is rounded.
template <class Accumulator>
NITINOL_HOST_DEVICE constexpr Accumulator average(Accumulator sum, int ranks) {
  if constexpr (std::is_floating_point_v<Accumulator>) {
    return exact::divide(sum, static_cast<Accumulator>(ranks));
  } else if constexpr (std::is_signed_v<Accumulator>) {
    return static_cast<Accumulator>(sum / ranks);
  } else {
    return static_cast<Accumulator>(sum / static_cast<unsigned>(ranks));
  }
}

/// An input element times the reduction's scalar, rounded to the element type.
template <DataType type>
NITINOL_HOST_DEVICE constexpr typename Arithmetic<type>::Element premultiply(
    typename Arithmetic<type>::Element x, typename Arithmetic<type>::Element scalar) {
  using A = Arithmetic<type>;
  return A::from_accumulator(combine<Combine::kProduct>(A::to_accumulator(x), A::to_accumulator(scalar)));
}

}  // namespace nitinol
