// Reads and writes of the user's buffers, which may start anywhere and end in the middle of a vector.
#pragma once

#include <cstdint>
#include <type_traits>

#include "executor/cuda/layout.h"

namespace nitinol::cuda {

/// Up to 16 bytes from an address of any alignment, as four words; zeros beyond `count`.
__device__ __noinline__ inline uint4 load_unaligned(const char* from, int count) {
  uint32_t words[4] = {0, 0, 0, 0};
  const auto address = reinterpret_cast<uintptr_t>(from);
  if (address % 4 == 0) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if (4 * w + 4 <= count) words[w] = reinterpret_cast<const uint32_t*>(from)[w];
    }
  } else if (address % 2 == 0) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (4 * (i / 2) + 4 <= count) {
        words[i / 2] |= static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(from)[i]) << (16 * (i % 2));
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (4 * (i / 4) + 4 <= count)
        words[i / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(from[i])) << (8 * (i % 4));
    }
  }
  uint32_t rest = 0;  // the bytes after the last whole word
  for (int i = count & ~3; i < count; ++i)
    rest |= static_cast<uint32_t>(static_cast<uint8_t>(from[i])) << (8 * (i % 4));
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if (count % 4 != 0 && w == count / 4) words[w] = rest;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __noinline__ inline void store_unaligned(char* to, uint4 value, int count) {
  const uint32_t words[4] = {value.x, value.y, value.z, value.w};
  const auto address = reinterpret_cast<uintptr_t>(to);
  if (address % 4 == 0) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if (4 * w + 4 <= count) reinterpret_cast<uint32_t*>(to)[w] = words[w];
    }
  } else if (address % 2 == 0) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (4 * (i / 2) + 4 <= count) {
        reinterpret_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(words[i / 2] >> (16 * (i % 2)));
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (4 * (i / 4) + 4 <= count) to[i] = static_cast<char>(words[i / 4] >> (8 * (i % 4)));
    }
  }
  uint32_t rest = 0;
#pragma unroll
  for (int w = 0; w < 4; ++w) rest = w == count / 4 ? words[w] : rest;
  for (int i = count & ~3; i < count; ++i) to[i] = static_cast<char>(rest >> (8 * (i % 4)));
}

/// 16 bytes from an address that is not a multiple of 16, cut out of the two aligned vectors that hold them.
__device__ __forceinline__ void load_shifted(const char* from, uint32_t (&words)[4]) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  const auto* const vectors = reinterpret_cast<const uint4*>(address / 16 * 16);
  const uint4 low = vectors[0];
  const uint4 high = vectors[1];
  uint32_t all[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  // In steps of powers of two: an index that is not known to the compiler would put the words into memory.
#pragma unroll
  for (int i = 0; i < 7; ++i) all[i] = (address & 4U) != 0 ? all[i + 1] : all[i];
#pragma unroll
  for (int i = 0; i < 6; ++i) all[i] = (address & 8U) != 0 ? all[i + 2] : all[i];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = static_cast<uint32_t>((static_cast<uint64_t>(all[i + 1]) << 32 | all[i]) >> (address % 4 * 8));
  }
}

template <uint32_t kGrain>
using GrainOf = std::conditional_t<kGrain == 1, uint8_t, std::conditional_t<kGrain == 2, uint16_t, uint32_t>>;

/// Words from an address that is a multiple of kGrain bytes. If it is within a word they are cut out of those around
/// them; nothing is read beyond the last byte that is wanted. No branches: loads of several units are to be under way.
template <uint32_t kGrain, int kWords>
__device__ __forceinline__ void load_whole(const char* from, uint32_t (&words)[kWords]) {
  const uint32_t within = kGrain == 4 ? 0 : reinterpret_cast<uintptr_t>(from) % 4;
  const auto* const around = reinterpret_cast<const uint32_t*>(from - within);
#pragma unroll
  for (int w = 0; w < kWords; ++w) words[w] = around[w];
  uint32_t last = 0;
  if ((within & 2U) != 0) last = *reinterpret_cast<const uint16_t*>(around + kWords);
  if (kGrain == 1 && (within & 1U) != 0) {
    const auto* const behind = reinterpret_cast<const uint8_t*>(around + kWords);
    last |= static_cast<uint32_t>(behind[within & 2U]) << ((within & 2U) * 8);
  }
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    const uint64_t high = w + 1 < kWords ? words[w + 1] : last;
    words[w] = static_cast<uint32_t>((high << 32 | words[w]) >> (within * 8));
  }
}
/// The same; zeros beyond `left`.
template <uint32_t kGrain, int kWords>
__device__ __forceinline__ void load_grains(const char* from, uint32_t left, uint32_t (&words)[kWords]) {
  if (left >= sizeof(words)) return load_whole<kGrain>(from, words);
  using Grain = GrainOf<kGrain>;
#pragma unroll
  for (int w = 0; w < kWords; ++w) words[w] = 0;
#pragma unroll
  for (uint32_t at = 0; at < sizeof(words); at += kGrain) {
    if (at < left) words[at / 4] |= static_cast<uint32_t>(*reinterpret_cast<const Grain*>(from + at)) << (at % 4 * 8);
  }
}

/// The bytes from `begin` to `end` of a word.
template <uint32_t kGrain>
__device__ __forceinline__ void store_part(uint32_t* to, uint32_t value, uint32_t begin, uint32_t end) {
  using Grain = GrainOf<kGrain>;
#pragma unroll
  for (uint32_t at = 0; at < 4; at += kGrain) {
    if (begin <= at && at < end) reinterpret_cast<Grain*>(to)[at / kGrain] = static_cast<Grain>(value >> (at * 8));
  }
}
template <uint32_t kGrain, int kWords>
__device__ __forceinline__ void store_grains(char* to, uint32_t left, const uint32_t (&words)[kWords]) {
  const uint32_t within = kGrain < 4 && left >= sizeof(words) ? reinterpret_cast<uintptr_t>(to) % 4 : 0;
  auto* const around = reinterpret_cast<uint32_t*>(to - within);
  if (left < sizeof(words)) {
    using Grain = GrainOf<kGrain>;
#pragma unroll
    for (uint32_t at = 0; at < sizeof(words); at += kGrain) {
      if (at < left) *reinterpret_cast<Grain*>(to + at) = static_cast<Grain>(words[at / 4] >> (at % 4 * 8));
    }
  } else if (within == 0) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) around[w] = words[w];
  } else if constexpr (kGrain < 4) {
    store_part<kGrain>(around, words[0] << (within * 8), within, 4);
#pragma unroll
    for (int w = 1; w < kWords; ++w) {
      around[w] = static_cast<uint32_t>((static_cast<uint64_t>(words[w]) << 32 | words[w - 1]) >> (32 - within * 8));
    }
    store_part<kGrain>(around + kWords, words[kWords - 1] >> (32 - within * 8), 0, within);
  }
}

/// A thread's part of one unit of the user's buffer.
template <class Wire>
struct UserMemory {
  static constexpr int kPieceWords = Wire::kShape.piece / 4;

  __device__ __forceinline__ static bool aligned(const void* base) {
    return reinterpret_cast<uintptr_t>(base) % Wire::kShape.piece == 0;
  }

  /// Whether pieces are moved by grains. Not by words that pieces of 16 bytes are made of: those go by less code.
  template <Bounds kBounds>
  static constexpr bool kByGrains = cuts_words(kBounds) || (begins_anywhere(kBounds) && kPieceWords != 4);
  /// Behind loads or stores that branch: what goes by warps is read and stored line by line, of which each takes
  /// several lanes, so these have to be together again. (What moves words and whole pieces asks too, in so few
  /// instructions that they are predicated, as nvcc 13.0 compiles them.)
  template <bool kAsks>
  __device__ __forceinline__ static void rejoin_lanes() {
    if constexpr (Wire::kPerWarp && kAsks) __syncwarp();
  }

  /// By wires that are counted such pieces are whole.
  template <uint32_t kGrain>
  __device__ __forceinline__ static void load_by_grains(const char* base, uint32_t bytes, uint32_t unit, int lane,
                                                        uint32_t (&words)[Wire::kWords]) {
#pragma unroll
    for (int piece = 0; piece < Wire::kPieces; ++piece) {
      const uint32_t at = Wire::offset(unit, lane, piece);
      uint32_t loaded[kPieceWords] = {};
      if constexpr (Wire::kCounted) {
        load_whole<kGrain>(base + at, loaded);
      } else if (is_there(bytes, at, lane, piece)) {
        load_grains<kGrain>(base + at, bytes - at, loaded);
      }
#pragma unroll
      for (int w = 0; w < kPieceWords; ++w) words[piece * kPieceWords + w] = loaded[w];
    }
  }
  template <uint32_t kGrain>
  __device__ __forceinline__ static void store_by_grains(char* base, uint32_t bytes, uint32_t unit, int lane,
                                                         const uint32_t (&words)[Wire::kWords]) {
#pragma unroll
    for (int piece = 0; piece < Wire::kPieces; ++piece) {
      const uint32_t at = Wire::offset(unit, lane, piece);
      if (!is_there(bytes, at, lane, piece)) continue;
      uint32_t stored[kPieceWords];
#pragma unroll
      for (int w = 0; w < kPieceWords; ++w) stored[w] = words[piece * kPieceWords + w];
      store_grains<kGrain>(base + at, bytes - at, stored);
    }
  }

  /// Whether a piece is moved by words of 4 bytes; with kWordEnds those are fewer than a piece has.
  template <Bounds kBounds>
  __device__ __forceinline__ static bool goes_by_words(uint32_t bytes, uint32_t at) {
    return kBounds == Bounds::kWords || (kBounds == Bounds::kWordEnds && at + Wire::kShape.piece > bytes);
  }

  template <Bounds kBounds>
  __device__ __forceinline__ static void load_by_words(const char* base, uint32_t bytes, uint32_t unit, int lane,
                                                       uint32_t (&words)[Wire::kWords]) {
#pragma unroll
    for (int piece = 0; piece < Wire::kPieces; ++piece) {
      const uint32_t at = Wire::offset(unit, lane, piece);
      const char* from = base + at;
      if constexpr (kPieceWords == 4) {
        uint4 value = make_uint4(0, 0, 0, 0);
        if (is_there(bytes, at, lane, piece)) {
          if (goes_by_words<kBounds>(bytes, at)) {
            const auto* const separate = reinterpret_cast<const uint32_t*>(from);
            value.x = separate[0];
            if (at + 4 < bytes) value.y = separate[1];
            if (at + 8 < bytes) value.z = separate[2];
            if (kBounds == Bounds::kWords && at + 12 < bytes) value.w = separate[3];
          } else {
            value = *reinterpret_cast<const uint4*>(from);
          }
        }
        words[piece * 4] = value.x;
        words[piece * 4 + 1] = value.y;
        words[piece * 4 + 2] = value.z;
        words[piece * 4 + 3] = value.w;
      } else {
        uint2 value = make_uint2(0, 0);
        if (goes_by_words<kBounds>(bytes, at)) {
          value.x = *reinterpret_cast<const uint32_t*>(from);
        } else {
          value = *reinterpret_cast<const uint2*>(from);
        }
        words[0] = value.x;
        words[1] = value.y;
      }
    }
  }
  template <Bounds kBounds>
  __device__ __forceinline__ static void store_by_words(char* base, uint32_t bytes, uint32_t unit, int lane,
                                                        const uint32_t (&words)[Wire::kWords]) {
#pragma unroll
    for (int piece = 0; piece < Wire::kPieces; ++piece) {
      const uint32_t at = Wire::offset(unit, lane, piece);
      char* to = base + at;
      if constexpr (kPieceWords == 4) {
        if (!is_there(bytes, at, lane, piece)) continue;
        if (goes_by_words<kBounds>(bytes, at)) {
          auto* const separate = reinterpret_cast<uint32_t*>(to);
          separate[0] = words[piece * 4];
          if (at + 4 < bytes) separate[1] = words[piece * 4 + 1];
          if (at + 8 < bytes) separate[2] = words[piece * 4 + 2];
          if (kBounds == Bounds::kWords && at + 12 < bytes) separate[3] = words[piece * 4 + 3];
        } else {
          *reinterpret_cast<uint4*>(to) =
              make_uint4(words[piece * 4], words[piece * 4 + 1], words[piece * 4 + 2], words[piece * 4 + 3]);
        }
      } else if (goes_by_words<kBounds>(bytes, at)) {
        *reinterpret_cast<uint32_t*>(to) = words[0];
      } else {
        *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
      }
    }
  }

  /// A unit, whole or where the buffer ends.
  template <Bounds kBounds>
  __device__ __forceinline__ static void load_pieces(const char* base, uint32_t bytes, uint32_t unit, int lane,
                                                     uint32_t (&words)[Wire::kWords]) {
    if constexpr (kByGrains<kBounds>) {
      load_by_grains<grain_of(kBounds)>(base, bytes, unit, lane, words);
    } else {
      load_by_words<kBounds>(base, bytes, unit, lane, words);
    }
  }
  template <Bounds kBounds>
  __device__ __forceinline__ static void store_pieces(char* base, uint32_t bytes, uint32_t unit, int lane,
                                                      const uint32_t (&words)[Wire::kWords]) {
    if constexpr (kByGrains<kBounds>) {
      store_by_grains<grain_of(kBounds)>(base, bytes, unit, lane, words);
    } else {
      store_by_words<kBounds>(base, bytes, unit, lane, words);
    }
  }

  /// With one piece per unit there is nothing to ask.
  __device__ __forceinline__ static bool is_there(uint32_t bytes, uint32_t at, int lane, int piece) {
    return Wire::kPieces == 1 || (Wire::has(lane, piece) && at < bytes);
  }

  /// Any unit of any buffer.
  __device__ __forceinline__ static void load(const char* base, bool vectors, uint32_t bytes, uint32_t unit, int lane,
                                              uint32_t (&words)[Wire::kWords]) {
#pragma unroll
    for (int piece = 0; piece < Wire::kPieces; ++piece) {
      const uint32_t at = Wire::offset(unit, lane, piece);
      uint4 value = make_uint4(0, 0, 0, 0);
      if (Wire::has(lane, piece) && at < bytes) {
        if (vectors && at + Wire::kShape.piece <= bytes) {
          if constexpr (kPieceWords == 4) {
            value = *reinterpret_cast<const uint4*>(base + at);
          } else {
            const uint2 half = *reinterpret_cast<const uint2*>(base + at);
            value.x = half.x;
            value.y = half.y;
          }
        } else {
          value = load_unaligned(base + at, static_cast<int>(min(Wire::kShape.piece, bytes - at)));
        }
      }
      words[piece * kPieceWords] = value.x;
      words[piece * kPieceWords + 1] = value.y;
      if constexpr (kPieceWords == 4) {
        words[piece * kPieceWords + 2] = value.z;
        words[piece * kPieceWords + 3] = value.w;
      }
    }
  }

  __device__ __forceinline__ static void store(char* base, bool vectors, uint32_t bytes, uint32_t unit, int lane,
                                               const uint32_t (&words)[Wire::kWords]) {
#pragma unroll
    for (int piece = 0; piece < Wire::kPieces; ++piece) {
      const uint32_t at = Wire::offset(unit, lane, piece);
      if (!Wire::has(lane, piece) || at >= bytes) continue;
      uint4 value = make_uint4(words[piece * kPieceWords], words[piece * kPieceWords + 1], 0, 0);
      if constexpr (kPieceWords == 4) {
        value.z = words[piece * kPieceWords + 2];
        value.w = words[piece * kPieceWords + 3];
      }
      if (vectors && at + Wire::kShape.piece <= bytes) {
        if constexpr (kPieceWords == 4) {
          *reinterpret_cast<uint4*>(base + at) = value;
        } else {
          *reinterpret_cast<uint2*>(base + at) = make_uint2(value.x, value.y);
        }
      } else {
        store_unaligned(base + at, value, static_cast<int>(min(Wire::kShape.piece, bytes - at)));
      }
    }
  }
};

}  // namespace nitinol::cuda
