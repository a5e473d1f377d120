// The 8-bit float types of CUDA on the host (C++ only): storage, and conversion from and to float. Converting to them
// rounds to nearest even and saturates to the largest finite value; a NaN stays one.
#pragma once

#ifdef __cplusplus
#include "vgpu_small_float.h"

typedef unsigned char __nv_fp8_storage_t;
typedef enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE } __nv_saturation_t;
typedef enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 } __nv_fp8_interpretation_t;

// Without saturation an overflow becomes infinity (e5m2) or NaN (e4m3, which has no infinity).
static inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(const float value, const __nv_saturation_t saturate,
                                                       const __nv_fp8_interpretation_t format) {
  const uint32_t bits = nitinolVgpuFloatBits(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<__nv_fp8_storage_t>(format == __NV_E4M3 ? sign | 0x7fu : 0x7fu);
  const uint32_t largest = format == __NV_E4M3 ? 0x7eu : 0x7bu;
  const uint32_t code = format == __NV_E4M3 ? nitinolVgpuNarrow(magnitude, 3, 7) : nitinolVgpuNarrow(magnitude, 2, 15);
  if (code <= largest) return static_cast<__nv_fp8_storage_t>(sign | code);
  return static_cast<__nv_fp8_storage_t>(sign | (saturate == __NV_SATFINITE ? largest : largest + 1));
}

static inline float nitinolVgpuFp8ToFloat(__nv_fp8_storage_t value, __nv_fp8_interpretation_t format) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x80u) << 24;
  const uint32_t code = value & 0x7fu;
  uint32_t magnitude = 0x7fc00000u;
  if (format == __NV_E4M3) {
    if (code != 0x7fu) magnitude = nitinolVgpuFloatBits(nitinolVgpuWiden(code, 3, 7));
  } else if (code <= 0x7cu) {
    magnitude = code == 0x7cu ? 0x7f800000u : nitinolVgpuFloatBits(nitinolVgpuWiden(code, 2, 15));
  }
  return nitinolVgpuFloatFromBits(sign | magnitude);
}

struct __nv_fp8_e4m3 {
  __nv_fp8_storage_t __x;
  __nv_fp8_e4m3() = default;
  explicit __nv_fp8_e4m3(float value) : __x(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3)) {}
  explicit __nv_fp8_e4m3(double value) : __nv_fp8_e4m3(static_cast<float>(value)) {}
  explicit __nv_fp8_e4m3(int value) : __nv_fp8_e4m3(static_cast<float>(value)) {}
  explicit operator float() const { return nitinolVgpuFp8ToFloat(__x, __NV_E4M3); }
};

struct __nv_fp8_e5m2 {
  __nv_fp8_storage_t __x;
  __nv_fp8_e5m2() = default;
  explicit __nv_fp8_e5m2(float value) : __x(__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2)) {}
  explicit __nv_fp8_e5m2(double value) : __nv_fp8_e5m2(static_cast<float>(value)) {}
  explicit __nv_fp8_e5m2(int value) : __nv_fp8_e5m2(static_cast<float>(value)) {}
  explicit operator float() const { return nitinolVgpuFp8ToFloat(__x, __NV_E5M2); }
};
#endif
