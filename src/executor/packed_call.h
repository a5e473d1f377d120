// A collective's call, as in Signature, in 32 bits: so much kernels can tell.
#pragma once

#include <cstdint>

#include "model/signature.h"

namespace nitinol {

/// Type and operator of Signature::call.
inline uint16_t call_terms(uint64_t call) {
  return static_cast<uint16_t>((call >> 8 & 0xf) | (call >> 16 & 0xf) << 4 | (call >> 24 & 0xf) << 8);
}

/// In what a kernel is given of a call's terms, where it has several calls: a bit that the rest leaves free.
inline constexpr uint16_t kAmongSeveral = 1 << 7;

/// Never 0.
NITINOL_HOST_DEVICE uint32_t packed_call(Collective what, uint16_t terms, int root) {
  return static_cast<uint32_t>(what) | static_cast<uint32_t>(terms) << 4 | static_cast<uint32_t>(root & 0xff) << 16 |
         1U << 31;
}

inline uint32_t packed_call(const Signature& signature) {
  return packed_call(static_cast<Collective>(signature.call & 0xff), call_terms(signature.call),
                     static_cast<int>(signature.call >> 32));
}

/// Signature::call, whatever the bits.
inline uint64_t unpacked_call(uint32_t packed) {
  const uint64_t bits = packed;
  const uint64_t call = (bits & 0x7) | (bits >> 4 & 0xf) << 8 | (bits >> 8 & 0x3) << 16 | (bits >> 12 & 0x3) << 24;
  return rooted(static_cast<Collective>(bits & 0x7)) ? call | (bits >> 16 & 0xff) << 32 : call;
}

}  // namespace nitinol
