// How the CTAs of a group move and combine the data of one large transfer, each its part: 16 bytes a thread, several in
// flight.
#pragma once

#include "executor/cuda/elements.h"
#include "executor/cuda/parameters.h"
#include "executor/cuda/ptx.h"
#include "executor/cuda/user_memory.h"

namespace nitinol::cuda {

/// Of one CTA, in shared memory.
struct BulkState {
  const char* source[kMaxRanks];  ///< by rank
  char* sink[kMaxRanks];          ///< slots to be filled
  int sinks;
  uint32_t sent[kMaxRanks];  ///< steps of each connection so far
  uint32_t received[kMaxRanks];
  bool given_up;
};

/// Of CTAs that share a transfer.
struct BulkPart {
  uint32_t index;
  uint32_t count;
};

/// Where a transfer's data goes.
struct BulkTarget {
  char* into;  ///< may be null
  char* const* sink;
  int sinks;
  size_t bytes;
  BulkPart part;
};

/// What is combined.
struct BulkSources {
  const char* own;
  const char* const* arrived;  ///< by rank
  int rank;
  int ranks;
  int divisor;  ///< 0: the result is no average
};

template <DataType type, Combine how>
class BulkMovement {
 public:
  using E = Elements<type>;
  using Accumulator = typename E::Accumulator;
  static constexpr size_t kElementBytes = E::kSize;

  // Functions with everything by value, so that it stays in registers.

  static __device__ __noinline__ void carry_own(BulkTarget target, const char* from) {
    BulkMovement(target).template carry<false>(from);
  }
  /// What is in a slot is read past the first-level cache, which may hold what was there before. Whole units of it are
  /// always there, beyond the end of the data too.
  static __device__ __noinline__ void carry_arrived(BulkTarget target, const char* from) {
    BulkMovement(target).template carry<true>(from);
  }
  /// All ranks' data in rank order.
  static __device__ __noinline__ void combine(BulkTarget target, BulkSources from) {
    BulkMovement(target).combine_all(from);
  }

 private:
  static constexpr int kWords = 4;
  static constexpr int kElements = E::template kCount<kWords>;
  static constexpr int kFlight = 8;

  __device__ __forceinline__ explicit BulkMovement(const BulkTarget& target) : target_(target) {}

  __device__ __forceinline__ uint32_t first_unit() const { return target_.part.index * blockDim.x + threadIdx.x; }
  __device__ __forceinline__ uint32_t units_apart() const { return target_.part.count * blockDim.x; }
  __device__ __forceinline__ uint32_t units() const { return static_cast<uint32_t>((target_.bytes + 15) / 16); }
  /// Whole units, if they lie as vectors do.
  __device__ __forceinline__ uint32_t plain_units() const {
    return aligned(target_.into) ? static_cast<uint32_t>(target_.bytes / 16) : 0;
  }
  __device__ __forceinline__ static bool aligned(const void* address) {
    return reinterpret_cast<uintptr_t>(address) % 16 == 0;
  }
  __device__ __forceinline__ int bytes_of_unit(uint32_t unit) const {
    return static_cast<int>(min(size_t{16}, target_.bytes - size_t{unit} * 16));
  }
  __device__ __forceinline__ uint4 load_own(const char* from, uint32_t unit) const {
    return load_unaligned(from + size_t{unit} * 16, bytes_of_unit(unit));
  }

  template <int kUnits>
  __device__ __forceinline__ void give(uint32_t unit, const uint4 (&value)[kUnits]) const {
    const uint32_t apart = units_apart();
    if (target_.into != nullptr) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u) store_16(target_.into + size_t{unit + u * apart} * 16, value[u]);
    }
    for (int s = 0; s < target_.sinks; ++s) {
      char* sink = target_.sink[s];
#pragma unroll
      for (int u = 0; u < kUnits; ++u) store_16(sink + size_t{unit + u * apart} * 16, value[u]);
    }
  }
  __device__ __forceinline__ void give_rest(uint32_t unit, uint4 value) const {
    if (target_.into != nullptr) store_unaligned(target_.into + size_t{unit} * 16, value, bytes_of_unit(unit));
    for (int s = 0; s < target_.sinks; ++s) store_16(target_.sink[s] + size_t{unit} * 16, value);
  }

  template <int kUnits>
  __device__ __forceinline__ uint32_t carry_units(const char* from, uint32_t unit, uint32_t plain) const {
    const uint32_t apart = units_apart();
    for (; unit + (kUnits - 1) * apart < plain; unit += kUnits * apart) {
      uint4 value[kUnits];
#pragma unroll
      for (int u = 0; u < kUnits; ++u) value[u] = load_16(from + size_t{unit + u * apart} * 16);
      give<kUnits>(unit, value);
    }
    return unit;
  }
  template <bool kSlot>
  __device__ __forceinline__ void carry(const char* from) const {
    const uint32_t plain = aligned(from) ? plain_units() : 0;
    uint32_t unit = carry_units<kFlight>(from, first_unit(), plain);
    unit = carry_units<1>(from, unit, plain);
    for (; unit < units(); unit += units_apart()) {
      give_rest(unit, kSlot ? load_16(from + size_t{unit} * 16) : load_own(from, unit));
    }
  }

  __device__ __forceinline__ static void start(Accumulator (&values)[kElements]) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) values[i] = E::template identity<how>();
  }
  __device__ __forceinline__ static void add(Accumulator (&values)[kElements], const uint4& part) {
    const uint32_t words[kWords] = {part.x, part.y, part.z, part.w};
    Accumulator more[kElements];
    E::template widen<kWords>(words, more);
#pragma unroll
    for (int i = 0; i < kElements; ++i) values[i] = E::template combine<how>(values[i], more[i]);
  }
  __device__ __forceinline__ static uint4 finish(Accumulator (&values)[kElements], int divisor) {
    if (divisor != 0) {
#pragma unroll
      for (int i = 0; i < kElements; ++i) values[i] = nitinol::average(values[i], divisor);
    }
    uint32_t words[kWords];
    E::template narrow<kWords>(values, words);
    return make_uint4(words[0], words[1], words[2], words[3]);
  }

  __device__ __forceinline__ void combine_all(const BulkSources& from) const {
    const uint32_t plain = aligned(from.own) ? plain_units() : 0;
    uint32_t unit = first_unit();
    switch (from.ranks) {
      case 2: unit = combine_known<2, 4>(from, unit, plain); break;
      case 3: unit = combine_known<3, 3>(from, unit, plain); break;
      case 4: unit = combine_known<4, 2>(from, unit, plain); break;
      case 8: unit = combine_known<8, 1>(from, unit, plain); break;
      default: break;
    }
    for (; unit < units(); unit += units_apart()) combine_rest(from, unit, unit < plain);
  }

  /// For a number of ranks that is known: all their data in flight at once. The first unit that is left.
  template <int kRanks, int kUnits>
  __device__ __forceinline__ uint32_t combine_known(const BulkSources& s, uint32_t unit, uint32_t plain) const {
    const uint32_t apart = units_apart();
    const char* from[kRanks];
#pragma unroll
    for (int r = 0; r < kRanks; ++r) from[r] = r == s.rank ? s.own : s.arrived[r];
    for (; unit + (kUnits - 1) * apart < plain; unit += kUnits * apart) {
      uint4 raw[kRanks][kUnits];
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
#pragma unroll
        for (int u = 0; u < kUnits; ++u) raw[r][u] = load_16(from[r] + size_t{unit + u * apart} * 16);
      }
      uint4 sum[kUnits];
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        Accumulator values[kElements];
        start(values);
#pragma unroll
        for (int r = 0; r < kRanks; ++r) add(values, raw[r][u]);
        sum[u] = finish(values, s.divisor);
      }
      give<kUnits>(unit, sum);
    }
    return unit;
  }
  __device__ __forceinline__ void combine_rest(const BulkSources& s, uint32_t unit, bool plain) const {
    Accumulator values[kElements];
    start(values);
    for (int r = 0; r < s.ranks; ++r) {
      if (r != s.rank) {
        add(values, load_16(s.arrived[r] + size_t{unit} * 16));
      } else {
        add(values, plain ? load_16(s.own + size_t{unit} * 16) : load_own(s.own, unit));
      }
    }
    const uint4 sum[1] = {finish(values, s.divisor)};
    if (plain) {
      give<1>(unit, sum);
    } else {
      give_rest(unit, sum[0]);
    }
  }

  const BulkTarget target_;
};

}  // namespace nitinol::cuda
