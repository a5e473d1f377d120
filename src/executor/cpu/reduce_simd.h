// Combining arrays with whatever vectors the including source is compiled for; it defines NITINOL_REDUCE_TABLE, the
// name of the table. Everything is internal to that source, and the arithmetic of model/arithmetic.h is written again
// in vectors here, because inline functions shared with other sources could end up compiled for a processor that we do
// not run on.
#pragma once

#define HWY_COMPILE_ONLY_STATIC
#include <hwy/highway.h>
#include <string.h>

#include <type_traits>

#include "executor/cpu/reduce_table.h"

namespace nitinol::cpu {

namespace {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatBits = hn::ScalableTag<uint32_t>;
using FloatKeys = hn::ScalableTag<int32_t>;

template <class Tag>
using UnsignedTag = hn::RebindToUnsigned<Tag>;
template <class Tag>
using SignedTag = hn::RebindToSigned<Tag>;

/// All bits but the sign.
template <class Tag>
HWY_INLINE hn::Vec<UnsignedTag<Tag>> magnitude_mask(Tag) {
  return hn::ShiftRight<1>(hn::Set(UnsignedTag<Tag>(), static_cast<hn::TFromD<UnsignedTag<Tag>>>(-1)));
}

/// NaNs become the one NaN that leaves a reduction.
template <class Tag>
HWY_INLINE hn::Vec<Tag> with_one_nan(Tag tag, hn::Vec<Tag> x) {
  return hn::IfThenElse(hn::IsNaN(x), hn::BitCast(tag, magnitude_mask(tag)), x);
}

// How elements get into vectors of accumulators and back: one struct per kind of element.

template <class T>
struct WideElements {
  using Element = T;
  using Tag = hn::ScalableTag<T>;
  static HWY_INLINE hn::Vec<Tag> load(const T* from) { return hn::LoadU(Tag(), from); }
  static HWY_INLINE void store(hn::Vec<Tag> x, T* into) {
    if constexpr (hwy::IsFloat<T>()) x = with_one_nan(Tag(), x);
    hn::StoreU(x, Tag(), into);
  }
};

/// 8- and 16-bit floats, in fp32 vectors. The same steps as SmallFloat of model/arithmetic.h.
template <class Bits, int kMantissa, int kBias, uint32_t kNan, uint32_t kOverflow>
struct SmallElements {
  using Element = Bits;
  using Tag = FloatTag;
  using Wide = hn::Vec<FloatBits>;
  using Narrow = hn::Rebind<Bits, FloatTag>;
  static constexpr int kSignShift = 8 * static_cast<int>(sizeof(Bits)) - 1;
  static constexpr int kShift = 23 - kMantissa;
  static constexpr uint32_t kMagnitude = (1U << kSignShift) - 1;
  static constexpr bool kNarrowerRange = kBias != 127;
  static constexpr bool kHasInfinity = kMantissa != 3;
  static constexpr uint32_t kInfinity = kMagnitude >> kMantissa << kMantissa;

  static HWY_INLINE Wide all(uint32_t value) { return hn::Set(FloatBits(), value); }

  static HWY_INLINE hn::Vec<Tag> load(const Bits* from) {
    const Wide bits = hn::PromoteTo(FloatBits(), hn::LoadU(Narrow(), from));
    const Wide magnitude = hn::And(bits, all(kMagnitude));
    const Wide sign = hn::ShiftLeft<31 - kSignShift>(hn::AndNot(all(kMagnitude), bits));
    if constexpr (!kNarrowerRange) {
      return hn::BitCast(Tag(), hn::ShiftLeft<16>(bits));
    } else {
      const Wide normal = hn::Add(hn::ShiftLeft<kShift>(magnitude), all(static_cast<uint32_t>(127 - kBias) << 23));
      const auto unit = hn::BitCast(Tag(), all(static_cast<uint32_t>(128 - kBias - kMantissa) << 23));
      const auto small = hn::Mul(hn::ConvertTo(Tag(), hn::BitCast(FloatKeys(), magnitude)), unit);
      const auto is_small = hn::Lt(keys(magnitude), keys(all(1U << kMantissa)));
      Wide wide = hn::IfThenElse(hn::RebindMask(FloatBits(), is_small), hn::BitCast(FloatBits(), small), normal);
      if constexpr (kHasInfinity) {
        const auto infinite = hn::Eq(magnitude, all(kInfinity));
        const auto nan = hn::Gt(keys(magnitude), keys(all(kInfinity)));
        wide = hn::IfThenElse(infinite, all(0x7f800000U), wide);
        wide = hn::IfThenElse(hn::RebindMask(FloatBits(), nan), all(0x7fffffffU), wide);
      } else {
        wide = hn::IfThenElse(hn::Eq(magnitude, all(kNan)), all(0x7fffffffU), wide);
      }
      return hn::BitCast(Tag(), hn::Or(sign, wide));
    }
  }

  static HWY_INLINE void store(hn::Vec<Tag> x, Bits* into) {
    const Wide bits = hn::BitCast(FloatBits(), x);
    const Wide magnitude = hn::And(bits, all(0x7fffffffU));
    const Wide sign = hn::ShiftLeft<kSignShift>(hn::ShiftRight<31>(bits));
    const Wide odd = hn::And(hn::ShiftRight<kShift>(magnitude), all(1));
    Wide rounded = hn::ShiftRight<kShift>(hn::Add(hn::Add(magnitude, all((1U << (kShift - 1)) - 1)), odd));
    rounded = hn::Sub(rounded, all(static_cast<uint32_t>(127 - kBias) << kMantissa));
    // Where the subtraction went below zero the number is subnormal and `small` is taken; minima are of positive
    // numbers.
    rounded = hn::BitCast(FloatBits(), hn::Min(keys(rounded), keys(all(kOverflow))));
    if constexpr (kNarrowerRange) {
      const Wide anchor = all(static_cast<uint32_t>(127 + 24 - kBias - kMantissa) << 23);
      const auto sum = hn::Add(hn::BitCast(Tag(), magnitude), hn::BitCast(Tag(), anchor));
      const Wide small = hn::Sub(hn::BitCast(FloatBits(), sum), anchor);
      const auto is_small = hn::Lt(keys(magnitude), keys(all(static_cast<uint32_t>(128 - kBias) << 23)));
      rounded = hn::IfThenElse(hn::RebindMask(FloatBits(), is_small), small, rounded);
    }
    const auto nan = hn::Gt(keys(magnitude), keys(all(0x7f800000U)));
    const Wide result = hn::IfThenElse(hn::RebindMask(FloatBits(), nan), all(kNan), hn::Or(sign, rounded));
    hn::StoreU(hn::DemoteTo(Narrow(), keys(result)), Narrow(), into);
  }

 private:
  static HWY_INLINE hn::Vec<FloatKeys> keys(Wide x) { return hn::BitCast(FloatKeys(), x); }
};

using Bfloat16Elements = SmallElements<uint16_t, 7, 127, 0x7fff, 0x7f80>;
using Float8E4m3Elements = SmallElements<uint8_t, 3, 7, 0x7f, 0x7e>;
using Float8E5m2Elements = SmallElements<uint8_t, 2, 15, 0x7f, 0x7b>;
#if defined(__F16C__)
/// The processor converts, to nearest even.
struct Float16Elements {
  using Element = uint16_t;
  using Tag = FloatTag;
  using Narrow = hn::Rebind<hwy::float16_t, FloatTag>;
  using NarrowBits = hn::Rebind<uint16_t, FloatTag>;
  static HWY_INLINE hn::Vec<Tag> load(const uint16_t* from) {
    return hn::PromoteTo(Tag(), hn::BitCast(Narrow(), hn::LoadU(NarrowBits(), from)));
  }
  static HWY_INLINE void store(hn::Vec<Tag> x, uint16_t* into) {
    const auto narrow = hn::DemoteTo(Narrow(), with_one_nan(Tag(), x));
    hn::StoreU(hn::BitCast(NarrowBits(), narrow), NarrowBits(), into);
  }
};
#else
using Float16Elements = SmallElements<uint16_t, 10, 15, 0x7fff, 0x7c00>;
#endif

// How accumulators combine. Each works on what prepare() makes of a loaded vector; finish() undoes that.

struct Sum {
  template <class Tag, class V>
  static HWY_INLINE V prepare(Tag, V x) {
    return x;
  }
  template <class Tag, class V>
  static HWY_INLINE V merge(Tag, V a, V b) {
    return hn::Add(a, b);
  }
  template <class Tag, class V>
  static HWY_INLINE V finish(Tag, V x, int) {
    return x;
  }
};

struct FloatAverage : Sum {
  template <class Tag, class V>
  static HWY_INLINE V finish(Tag tag, V x, int ranks) {
    return hn::Div(x, hn::Set(tag, static_cast<hn::TFromD<Tag>>(ranks)));
  }
};

template <class T>
HWY_INLINE void multiply_lanes(T* a, const T* b, size_t lanes) {
  for (size_t i = 0; i < lanes; ++i) a[i] = static_cast<T>(static_cast<uint64_t>(a[i]) * static_cast<uint64_t>(b[i]));
}

struct Product : Sum {
  template <class Tag, class V>
  static HWY_INLINE V merge(Tag tag, V a, V b) {
    using T = hn::TFromD<Tag>;
    if constexpr (hwy::IsFloat<T>() || sizeof(T) == 4) {
      return hn::Mul(a, b);
    } else {  // no such vector instruction everywhere
      HWY_ALIGN T x[HWY_LANES(T)];
      HWY_ALIGN T y[HWY_LANES(T)];
      hn::Store(a, tag, x);
      hn::Store(b, tag, y);
      multiply_lanes(x, y, hn::Lanes(tag));
      return hn::Load(tag, x);
    }
  }
};

/// Floats compare as integers whose order is that of the numbers, -0 before +0, NaN behind everything.
template <bool kMaximum>
struct Extreme {
  template <class Tag, class V>
  static HWY_INLINE auto prepare(Tag, V x) {
    if constexpr (hwy::IsFloat<hn::TFromD<Tag>>()) {
      using Keys = SignedTag<Tag>;
      const auto last = hn::BitCast(Keys(), magnitude_mask(Tag()));
      const auto worst = kMaximum ? hn::Not(last) : last;
      return hn::IfThenElse(hn::RebindMask(Keys(), hn::IsNaN(x)), worst, turn<Tag>(hn::BitCast(Keys(), x)));
    } else {
      return x;
    }
  }
  template <class Tag, class V>
  static HWY_INLINE V merge(Tag, V a, V b) {
    return kMaximum ? hn::Max(a, b) : hn::Min(a, b);
  }
  template <class Tag, class V>
  static HWY_INLINE auto finish(Tag, V x, int) {
    if constexpr (hwy::IsFloat<hn::TFromD<Tag>>()) {
      return hn::BitCast(Tag(), turn<Tag>(x));  // the worst key becomes a NaN
    } else {
      return x;
    }
  }

 private:
  /// Turns the order of negative numbers around; its own inverse.
  template <class Tag, class V>
  static HWY_INLINE V turn(V bits) {
    using Keys = SignedTag<Tag>;
    const auto negative = hn::BroadcastSignBit(bits);
    return hn::Xor(bits, hn::And(negative, hn::BitCast(Keys(), magnitude_mask(Tag()))));
  }
};

template <class E, class Op>
struct Reducer {
  using T = typename E::Element;
  using Tag = typename E::Tag;

  static HWY_INLINE auto load(const void* source, size_t i) {
    return Op::prepare(Tag(), E::load(static_cast<const T*>(source) + i));
  }
  static HWY_INLINE auto merged(decltype(load(nullptr, 0)) a, const void* source, size_t i) {
    return Op::merge(Tag(), a, load(source, i));
  }

  static void run(void* into, const void* const* sources, int source_count, size_t count, int ranks) {
    const size_t lanes = hn::Lanes(Tag());
    T* const out = static_cast<T*>(into);
    size_t i = 0;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      auto a = load(sources[0], i);
      auto b = load(sources[0], i + lanes);
      auto c = load(sources[0], i + 2 * lanes);
      auto d = load(sources[0], i + 3 * lanes);
      for (int s = 1; s < source_count; ++s) {
        a = merged(a, sources[s], i);
        b = merged(b, sources[s], i + lanes);
        c = merged(c, sources[s], i + 2 * lanes);
        d = merged(d, sources[s], i + 3 * lanes);
      }
      E::store(Op::finish(Tag(), a, ranks), out + i);
      E::store(Op::finish(Tag(), b, ranks), out + i + lanes);
      E::store(Op::finish(Tag(), c, ranks), out + i + 2 * lanes);
      E::store(Op::finish(Tag(), d, ranks), out + i + 3 * lanes);
    }
    for (; i + lanes <= count; i += lanes) {
      auto a = load(sources[0], i);
      for (int s = 1; s < source_count; ++s) a = merged(a, sources[s], i);
      E::store(Op::finish(Tag(), a, ranks), out + i);
    }
    if (i < count) run_tail(out, sources, source_count, {i, count - i}, ranks);
  }

 private:
  struct Tail {
    size_t begin;
    size_t count;
  };

  /// Fewer elements than a vector: through a padded copy.
  static void run_tail(T* out, const void* const* sources, int source_count, Tail tail, int ranks) {
    T padded[HWY_MAX_BYTES / sizeof(T)] = {};
    memcpy(padded, static_cast<const T*>(sources[0]) + tail.begin, tail.count * sizeof(T));
    auto a = load(padded, 0);
    for (int s = 1; s < source_count; ++s) {
      memcpy(padded, static_cast<const T*>(sources[s]) + tail.begin, tail.count * sizeof(T));
      a = merged(a, padded, 0);
    }
    E::store(Op::finish(Tag(), a, ranks), padded);
    memcpy(out + tail.begin, padded, tail.count * sizeof(T));
  }
};

template <class E>
void average_integers(void* into, const void* const* sources, int source_count, size_t count, int ranks) {
  using T = typename E::Element;
  using Wide = std::conditional_t<hwy::IsSigned<T>(), int64_t, uint64_t>;
  Reducer<E, Sum>::run(into, sources, source_count, count, ranks);
  T* const out = static_cast<T*>(into);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<T>(static_cast<Wide>(out[i]) / static_cast<Wide>(ranks));
}

template <class E>
constexpr ReduceFunction average_function() {
  if constexpr (hwy::IsFloat<hn::TFromD<typename E::Tag>>()) {
    return Reducer<E, FloatAverage>::run;
  } else {
    return average_integers<E>;
  }
}

template <class E>
void premultiply(void* into, const void* from, const void* scalar, size_t count) {
  using T = typename E::Element;
  const typename E::Tag tag;
  const size_t lanes = hn::Lanes(tag);
  T padded[HWY_MAX_BYTES / sizeof(T)] = {};
  for (size_t lane = 0; lane < lanes; ++lane) memcpy(padded + lane, scalar, sizeof(T));
  const auto factor = E::load(padded);
  T* const out = static_cast<T*>(into);
  const T* const in = static_cast<const T*>(from);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) E::store(Product::merge(tag, E::load(in + i), factor), out + i);
  if (i < count) {
    memcpy(padded, in + i, (count - i) * sizeof(T));
    E::store(Product::merge(tag, E::load(padded), factor), padded);
    memcpy(out + i, padded, (count - i) * sizeof(T));
  }
}

/// Fills the rows of a table; the kinds of elements come in the order of DataType.
template <class... E>
struct Row {
  template <class Op>
  static constexpr void reduce_into(ReduceFunction* row) {
    ((*row++ = Reducer<E, Op>::run), ...);
  }
  static constexpr void average_into(ReduceFunction* row) { ((*row++ = average_function<E>()), ...); }
  static constexpr void premultiply_into(PremultiplyFunction* row) { ((*row++ = premultiply<E>), ...); }
};

constexpr ReduceTable make_table() {
  using Types = Row<WideElements<int8_t>, WideElements<uint8_t>, WideElements<int32_t>, WideElements<uint32_t>,
                    WideElements<int64_t>, WideElements<uint64_t>, Float16Elements, WideElements<float>,
                    WideElements<double>, Bfloat16Elements, Float8E4m3Elements, Float8E5m2Elements>;
  ReduceTable table{};
  Types::reduce_into<Sum>(table.combine[static_cast<int>(Combine::kSum)]);
  Types::reduce_into<Product>(table.combine[static_cast<int>(Combine::kProduct)]);
  Types::reduce_into<Extreme<true>>(table.combine[static_cast<int>(Combine::kMax)]);
  Types::reduce_into<Extreme<false>>(table.combine[static_cast<int>(Combine::kMin)]);
  Types::average_into(table.average);
  Types::premultiply_into(table.premultiply);
  return table;
}

}  // namespace

constinit const ReduceTable NITINOL_REDUCE_TABLE = make_table();

}  // namespace nitinol::cpu
