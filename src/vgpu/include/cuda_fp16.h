// The 16-bit float type of CUDA on the host: storage, and conversion from and to float.
#pragma once

#include "vgpu_small_float.h"

typedef struct __half_raw {
  unsigned short x;
} __half_raw;

static inline unsigned short nitinolVgpuHalfFromFloat(float value) {
  uint32_t bits = nitinolVgpuFloatBits(value);
  uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t code = nitinolVgpuNarrow(magnitude, 10, 15);
  if (magnitude > 0x7f800000u) return 0x7fff;
  return (unsigned short)(((bits >> 16) & 0x8000u) | (code > 0x7c00u ? 0x7c00u : code));
}

static inline float nitinolVgpuHalfToFloat(unsigned short half) {
  uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  uint32_t code = half & 0x7fffu;
  if (code >= 0x7c00u) return nitinolVgpuFloatFromBits(sign | 0x7f800000u | ((code & 0x3ffu) << 13));
  return nitinolVgpuFloatFromBits(sign | nitinolVgpuFloatBits(nitinolVgpuWiden(code, 10, 15)));
}

#ifdef __cplusplus
struct __half {
  __half() = default;
  __half(const __half_raw& raw) : __x(raw.x) {}
  __half(float value) : __x(nitinolVgpuHalfFromFloat(value)) {}
  operator float() const { return nitinolVgpuHalfToFloat(__x); }
  operator __half_raw() const {
    __half_raw raw;
    raw.x = __x;
    return raw;
  }

 protected:
  unsigned short __x;
};
typedef __half half;

static inline __half __float2half(float value) { return __half(value); }
static inline __half __float2half_rn(float value) { return __half(value); }
static inline float __half2float(__half value) { return static_cast<float>(value); }
static inline unsigned short __half_as_ushort(__half value) { return static_cast<__half_raw>(value).x; }
static inline __half __ushort_as_half(unsigned short bits) {
  __half_raw raw;
  raw.x = bits;
  return __half(raw);
}
#else
typedef struct __half {
  unsigned short __x;
} __half;

static inline __half __float2half(float value) {
  __half result;
  result.__x = nitinolVgpuHalfFromFloat(value);
  return result;
}
static inline float __half2float(__half value) { return nitinolVgpuHalfToFloat(value.__x); }
#endif
