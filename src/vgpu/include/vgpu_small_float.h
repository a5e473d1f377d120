// Conversions between float and narrower formats for the type headers cuda_fp16.h, cuda_bf16.h and cuda_fp8.h.
#pragma once

#include <stdint.h>
#include <string.h>

static inline uint32_t nitinolVgpuFloatBits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float nitinolVgpuFloatFromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Drops `shift` low bits, rounding to nearest, ties to even.
static inline uint32_t nitinolVgpuRoundShift(uint32_t value, int shift) {
  uint32_t half, rest, result;
  if (shift > 31) return 0;
  half = 1u << (shift - 1);
  rest = value & ((half << 1) - 1);
  result = value >> shift;
  return result + (rest > half || (rest == half && (result & 1)) ? 1 : 0);
}

// The magnitude of a float (its bits without the sign, not a NaN) in a format with that many mantissa bits and that
// exponent bias; overflow runs on into codes beyond the largest finite one.
static inline uint32_t nitinolVgpuNarrow(uint32_t magnitude, int mantissa, int bias) {
  int exponent = (int)(magnitude >> 23) - 127 + bias;
  uint32_t fraction = magnitude & 0x7fffffu;
  if ((magnitude >> 23) == 0) return 0;
  if (exponent >= 1) return nitinolVgpuRoundShift(((uint32_t)exponent << 23) | fraction, 23 - mantissa);
  return nitinolVgpuRoundShift(fraction | 0x800000u, 23 - mantissa + 1 - exponent);
}

// The float of a finite magnitude code in such a format.
static inline float nitinolVgpuWiden(uint32_t code, int mantissa, int bias) {
  uint32_t exponent = code >> mantissa;
  uint32_t fraction = code & ((1u << mantissa) - 1);
  if (exponent == 0) {
    return (float)fraction * nitinolVgpuFloatFromBits((uint32_t)(127 + 1 - bias - mantissa) << 23);
  }
  return nitinolVgpuFloatFromBits(((exponent + 127 - (uint32_t)bias) << 23) | (fraction << (23 - mantissa)));
}
