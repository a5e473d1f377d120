// How the elements of a call become one: what kernels that combine otherwise than by a sum are told of it.
#pragma once

#include <type_traits>

#include "executor/cuda/elements.h"
#include "executor/cuda/parameters.h"

namespace nitinol::cuda {

/// Sums, which are the same of unsigned integers as of signed ones.
template <DataType type, Combiner with>
struct Combination {
  using E = Elements<type>;
  using Accumulator = typename E::Accumulator;
  template <int kWords>
  using Values = Accumulator[E::template kCount<kWords>];

  __device__ __forceinline__ void begin(const Work&) {}
  __device__ __forceinline__ Accumulator identity() const { return E::template identity<with>(Combine::kSum); }
  __device__ __forceinline__ Accumulator combine(Accumulator a, Accumulator b) const {
    return E::template combine<with>(Combine::kSum, a, b);
  }
  template <int kWords>
  __device__ __forceinline__ void widen(const uint32_t (&words)[kWords], Values<kWords>& out) const {
    E::template widen<kWords>(words, out);
  }
  template <int kWords>
  __device__ __forceinline__ void narrow(const Values<kWords>& in, uint32_t (&words)[kWords]) const {
    E::template narrow<kWords>(in, words);
  }
};

/// Only moves data.
template <DataType type>
struct Combination<type, Combiner::kNone> {};

/// Products, maxima and minima. Unsigned integers share the kernels of signed ones, in whose order they are once their
/// highest bits have been turned over; but for bytes, which took up to 13 % longer so.
template <DataType type>
struct Combination<type, Combiner::kOther> {
  using E = Elements<type>;
  using Accumulator = typename E::Accumulator;
  template <int kWords>
  using Values = Accumulator[E::template kCount<kWords>];
  static constexpr bool kTurns = std::is_integral_v<Accumulator> && E::kSize > 1;

  __device__ __forceinline__ void begin(const Work& work) {
    how_ = work.combine;
    if constexpr (kTurns) turned_ = work.is_unsigned && how_ != Combine::kProduct ? 1U << 31 : 0;
  }
  __device__ __forceinline__ Accumulator identity() const { return E::template identity<Combiner::kOther>(how_); }
  __device__ __forceinline__ Accumulator combine(Accumulator a, Accumulator b) const {
    return E::template combine<Combiner::kOther>(how_, a, b);
  }
  template <int kWords>
  __device__ __forceinline__ void widen(const uint32_t (&words)[kWords], Values<kWords>& out) const {
    uint32_t ordered[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) ordered[w] = turn(words[w], w);
    E::template widen<kWords>(ordered, out);
  }
  template <int kWords>
  __device__ __forceinline__ void narrow(const Values<kWords>& in, uint32_t (&words)[kWords]) const {
    E::template narrow<kWords>(in, words);
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = turn(words[w], w);
  }

 private:
  /// The word that is the w-th of a vector.
  __device__ __forceinline__ uint32_t turn(uint32_t word, int w) const {
    if constexpr (!kTurns) return word;
    return E::kSize == 8 && w % 2 == 0 ? word : word ^ turned_;
  }

  Combine how_ = Combine::kProduct;
  uint32_t turned_ = 0;  ///< bits of each word that has the highest bit of an element
};

}  // namespace nitinol::cuda
