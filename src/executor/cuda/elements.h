// Reductions over register words: a thread's 8, 16 or 32 bytes as elements of a type. The bits are those of
// model/arithmetic.h; where the GPU has an instruction that gives the same bits, it is used.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "executor/cuda/combiner.h"
#include "model/arithmetic.h"

namespace nitinol::cuda {

template <class Wide>
union Bits64 {
  Wide value;
  uint32_t word[2];
};

/// One register word (two for 8-byte types) to and from accumulators.
template <DataType type>
struct Elements {
  using A = Arithmetic<type>;
  using Element = typename A::Element;
  using Accumulator = typename A::Accumulator;
  static constexpr int kSize = static_cast<int>(sizeof(Element));

  template <int kWords>
  static constexpr int kCount = kWords * 4 / kSize;

  template <int kWords>
  __device__ __forceinline__ static void widen(const uint32_t (&words)[kWords], Accumulator (&out)[kCount<kWords>]) {
    if constexpr (type == DataType::kFloat16) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&words[w]));
        out[2 * w] = pair.x;
        out[2 * w + 1] = pair.y;
      }
    } else if constexpr (type == DataType::kBfloat16) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        out[2 * w] = std::bit_cast<float>(words[w] << 16);
        out[2 * w + 1] = std::bit_cast<float>(words[w] & 0xffff0000U);
      }
    } else if constexpr (type == DataType::kFloat8E4m3 || type == DataType::kFloat8E5m2) {
      constexpr auto format = type == DataType::kFloat8E4m3 ? __NV_E4M3 : __NV_E5M2;
#pragma unroll
      for (int w = 0; w < 2 * kWords; ++w) {
        const auto two = static_cast<__nv_fp8x2_storage_t>(words[w / 2] >> (16 * (w % 2)));
        const float2 pair = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(two, format)));
        out[2 * w] = pair.x;
        out[2 * w + 1] = pair.y;
      }
    } else if constexpr (kSize == 8) {
#pragma unroll
      for (int w = 0; w < kWords / 2; ++w) {
        const uint64_t both = static_cast<uint64_t>(words[2 * w + 1]) << 32 | words[2 * w];
        out[w] = std::bit_cast<Element>(both);
      }
    } else if constexpr (kSize == 4) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) out[w] = std::bit_cast<Element>(words[w]);
    } else {
#pragma unroll
      for (int i = 0; i < 4 * kWords; ++i) out[i] = static_cast<Element>(words[i / 4] >> (8 * (i % 4)));
    }
  }

  template <int kWords>
  __device__ __forceinline__ static void narrow(const Accumulator (&in)[kCount<kWords>], uint32_t (&words)[kWords]) {
    if constexpr (type == DataType::kFloat16) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const __half2 pair = __floats2half2_rn(in[2 * w], in[2 * w + 1]);
        words[w] = *reinterpret_cast<const uint32_t*>(&pair);
      }
    } else if constexpr (type == DataType::kBfloat16) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(in[2 * w], in[2 * w + 1]);
        words[w] = *reinterpret_cast<const uint32_t*>(&pair);
      }
    } else if constexpr (type == DataType::kFloat8E4m3 || type == DataType::kFloat8E5m2) {
      constexpr auto format = type == DataType::kFloat8E4m3 ? __NV_E4M3 : __NV_E5M2;
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(in[4 * w], in[4 * w + 1]), __NV_SATFINITE, format);
        const uint32_t high =
            __nv_cvt_float2_to_fp8x2(make_float2(in[4 * w + 2], in[4 * w + 3]), __NV_SATFINITE, format);
        words[w] = low | high << 16;
      }
    } else if constexpr (kSize == 8) {
#pragma unroll
      for (int w = 0; w < kWords / 2; ++w) {
        const auto both = std::bit_cast<uint64_t>(A::from_accumulator(in[w]));
        words[2 * w] = static_cast<uint32_t>(both);
        words[2 * w + 1] = static_cast<uint32_t>(both >> 32);
      }
    } else if constexpr (kSize == 4) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) words[w] = std::bit_cast<uint32_t>(A::from_accumulator(in[w]));
    } else {
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        words[w] = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          words[w] |= static_cast<uint32_t>(static_cast<uint8_t>(in[4 * w + i])) << (8 * i);
        }
      }
    }
  }

  /// What combines with any x to x, bit for bit: a start that needs no special case for the first contribution.
  template <Combiner with>
  __device__ __forceinline__ static Accumulator identity(Combine how) {
    if constexpr (with == Combiner::kSum) {
      return static_cast<Accumulator>(-0.0);
    } else {
      const Accumulator one = static_cast<Accumulator>(1);
      return how == Combine::kProduct ? one : how == Combine::kMax ? least() : greatest();
    }
  }

  /// a and b combined, in that order. All three ways and then a choice: a branch for each element takes longer.
  template <Combiner with>
  __device__ __forceinline__ static Accumulator combine(Combine how, Accumulator a, Accumulator b) {
    if constexpr (with == Combiner::kSum) {
      return nitinol::combine<Combine::kSum>(a, b);
    } else {
      const Accumulator product = nitinol::combine<Combine::kProduct>(a, b);
      const Accumulator high = maximum(a, b);
      const Accumulator low = minimum(a, b);
      const Accumulator extreme = how == Combine::kMax ? high : low;
      return how == Combine::kProduct ? product : extreme;
    }
  }

  /// The scalar of a reduction from its bytes.
  __device__ __forceinline__ static Element element_of(uint64_t bytes) {
    if constexpr (kSize == 8) {
      return std::bit_cast<Element>(bytes);
    } else if constexpr (kSize == 4) {
      return std::bit_cast<Element>(static_cast<uint32_t>(bytes));
    } else {
      return static_cast<Element>(bytes);
    }
  }

 private:
  // float has an instruction that beats NaN by a number and orders -0 below +0, as the rules ask.
  __device__ __forceinline__ static Accumulator maximum(Accumulator a, Accumulator b) {
    if constexpr (std::is_same_v<Accumulator, float>) {
      return fmaxf(a, b);
    } else {
      return nitinol::combine<Combine::kMax>(a, b);
    }
  }
  __device__ __forceinline__ static Accumulator minimum(Accumulator a, Accumulator b) {
    if constexpr (std::is_same_v<Accumulator, float>) {
      return fminf(a, b);
    } else {
      return nitinol::combine<Combine::kMin>(a, b);
    }
  }

  /// The identities of maximum and minimum: not a number where there is such a thing.
  __device__ __forceinline__ static Accumulator least() {
    if constexpr (std::is_floating_point_v<Accumulator>) {
      return static_cast<Accumulator>(__int_as_float(0x7fffffff));
    } else {
      return std::is_signed_v<Accumulator> ? -greatest() - 1 : 0;
    }
  }
  __device__ __forceinline__ static Accumulator greatest() {
    if constexpr (std::is_floating_point_v<Accumulator>) {
      return least();
    } else {
      constexpr auto ones = static_cast<std::make_unsigned_t<Accumulator>>(~0ULL);
      return static_cast<Accumulator>(std::is_signed_v<Accumulator> ? ones >> 1 : ones);
    }
  }
};

}  // namespace nitinol::cuda
