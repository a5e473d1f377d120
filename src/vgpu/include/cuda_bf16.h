// The bfloat16 type of CUDA on the host: storage, and conversion from and to float.
#pragma once

#include "vgpu_small_float.h"

typedef struct __nv_bfloat16_raw {
  unsigned short x;
} __nv_bfloat16_raw;

static inline unsigned short nitinolVgpuBfloat16FromFloat(float value) {
  uint32_t bits = nitinolVgpuFloatBits(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)nitinolVgpuRoundShift(bits, 16);
}

static inline float nitinolVgpuBfloat16ToFloat(unsigned short value) {
  return nitinolVgpuFloatFromBits((uint32_t)value << 16);
}

#ifdef __cplusplus
struct __nv_bfloat16 {
  __nv_bfloat16() = default;
  __nv_bfloat16(const __nv_bfloat16_raw& raw) : __x(raw.x) {}
  __nv_bfloat16(float value) : __x(nitinolVgpuBfloat16FromFloat(value)) {}
  operator float() const { return nitinolVgpuBfloat16ToFloat(__x); }
  operator __nv_bfloat16_raw() const {
    __nv_bfloat16_raw raw;
    raw.x = __x;
    return raw;
  }

 protected:
  unsigned short __x;
};
typedef __nv_bfloat16 nv_bfloat16;

static inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
static inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
static inline float __bfloat162float(__nv_bfloat16 value) { return static_cast<float>(value); }
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) {
  return static_cast<__nv_bfloat16_raw>(value).x;
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __nv_bfloat16_raw raw;
  raw.x = bits;
  return __nv_bfloat16(raw);
}
#else
typedef struct __nv_bfloat16 {
  unsigned short __x;
} __nv_bfloat16;

static inline __nv_bfloat16 __float2bfloat16(float value) {
  __nv_bfloat16 result;
  result.__x = nitinolVgpuBfloat16FromFloat(value);
  return result;
}
static inline float __bfloat162float(__nv_bfloat16 value) { return nitinolVgpuBfloat16ToFloat(value.__x); }
#endif
