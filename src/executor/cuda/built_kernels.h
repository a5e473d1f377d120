// Which kernels are made of which templates, for one type and combiner. For nvcc alone.
#pragma once

#include <type_traits>

#include "executor/cuda/collective_kernels.h"
#include "executor/cuda/kernel_set.h"

namespace nitinol::cuda {

/// Whether the algorithm has kernels of the wire at all.
template <class Wire, DataType type, Combiner with, class Entry>
constexpr bool is_built() {
  if (Wire::kApart) return algorithm::suits_parts(Entry::row.what, Entry::row.algorithm);
  if (std::is_same_v<Wire, LL16>) return algorithm::suits_lines(Entry::row.what, Entry::row.algorithm, type);
  return !Wire::kSmall ||
         algorithm::suits_small_ctas(Entry::row.what, Entry::row.algorithm, type, 2, with != Combiner::kOther);
}

/// Whether the algorithm has a kernel of its own, where every transfer is inlined; the others share one.
template <class Wire, DataType type, Combiner with, class Entry>
constexpr bool is_hot() {
  constexpr Algorithm algorithm = Entry::row.algorithm;
  if (Wire::kSmall && !Wire::kApart) return true;
  if (Wire::kCounted) return false;  // with so much data per transfer a call matters little
  // Between up to 8 ranks it is so long that it goes by LL128, or by Simple.
  if (Entry::row.what == Collective::kReduce && algorithm == Algorithm::kTwoShot) return Wire::kPerWarp;
  if (algorithm == Algorithm::kRing) {
    constexpr bool by_lines = Wire::kProtocol == Protocol::kLL128 || std::is_same_v<Wire, LL16>;
    return by_lines && algorithm::suits_ring(Entry::row.what, type, with != Combiner::kOther);
  }
  return algorithm == Algorithm::kOneShot || algorithm == Algorithm::kTwoShot;
}

/// Of an algorithm's own kernel. What is beyond them takes longer than all the rest, as its instructions are not at
/// hand: so there may be any word at the end, but only where others take no longer for it. Broadcasts by LL128 would
/// take up to 5 % longer, messages 8 %, all-reduces 4 %, reduces in a ring 3 %.
template <class Wire>
constexpr Bounds usual_bounds(const algorithm::Row& row) {
  constexpr bool by_ll = std::is_same_v<Wire, LL8>;
  const bool reduces_to_root = row.what == Collective::kReduce && row.algorithm != Algorithm::kRing;
  const bool broadcasts = row.what == Collective::kBroadcast && row.algorithm == Algorithm::kOneShot;
  const bool by_words = (reduces_to_root && (by_ll || std::is_same_v<Wire, LL128>)) || (broadcasts && by_ll);
  return by_words ? Bounds::kWordEnds : Bounds::kPieces;
}

/// Whether it has a kernel for words besides, if it is brief;
template <class Wire, DataType type, Combiner with>
constexpr bool has_brief_words(Collective what) {
  return std::is_same_v<Wire, LL128> && with != Combiner::kOther && algorithm::is_often_long(what, type);
}
/// and if it is not: other than for blocks there would be little gain.
template <class Wire, DataType type, Combiner with>
constexpr bool has_words(Collective what) {
  return has_brief_words<Wire, type, with>(what) && bounds_of_words(what) == Bounds::kWords;
}

/// Types of which sums often begin anywhere, as parts of larger buffers.
constexpr bool is_often_cut(Collective what, DataType type) {
  return algorithm::is_often_long(what, type) && bytes_of(type) <= 4;
}
/// Whether there is a kernel for what begins or ends elsewhere, if it is brief;
template <class Wire, DataType type, Combiner with>
constexpr bool has_brief_grains(Collective what) {
  constexpr bool by_ll = std::is_same_v<Wire, LL8>;  // which moves any words
  const Bounds grains = bounds_of_grains(what, type);
  if (with == Combiner::kOther || !is_often_cut(what, type)) return false;
  return by_ll ? cuts_words(grains) : std::is_same_v<Wire, LL128> && grains != bounds_of_words(what);
}
/// and if it is not: by LL that is what is rooted. Broadcasts hardly go in two shots.
template <class Wire, DataType type, Combiner with>
constexpr bool has_grains(const algorithm::Row& row) {
  const bool in_two_shots = row.algorithm == Algorithm::kTwoShot;
  if (row.what == Collective::kBroadcast && in_two_shots) return false;
  if (std::is_same_v<Wire, LL8>) return rooted(row.what) && has_brief_grains<LL128, type, with>(row.what);
  return has_brief_grains<Wire, type, with>(row.what);
}

/// By small CTAs: where else it would be slower than by others' libraries.
template <class Wire, DataType type, Combiner with>
constexpr bool has_small_grains(const algorithm::Row& row) {
  if (!Wire::kSmall || Wire::kApart || with == Combiner::kOther || !is_often_cut(row.what, type)) return false;
  return row.what != Collective::kBroadcast;
}

/// The entries of the table that reduce (or that do not) and share a kernel, for size.
template <class Wire, DataType type, Combiner with, bool kReduces, class... Chosen, class Entry, class... More>
constexpr auto shared_entries(algorithm::List<Chosen...>, algorithm::List<Entry, More...>) {
  constexpr bool shares =
      reduces(Entry::row.what) == kReduces && is_built<Wire, type, with, Entry>() && !is_hot<Wire, type, with, Entry>();
  using Found = std::conditional_t<shares, algorithm::List<Chosen..., Entry>, algorithm::List<Chosen...>>;
  if constexpr (sizeof...(More) == 0) {
    return Found{};
  } else {
    return shared_entries<Wire, type, with, kReduces>(Found{}, algorithm::List<More...>{});
  }
}

template <class Wire>
constexpr Way way_of() {
  if (joins_parts<Wire>) return Way::kJoined;
  if (Wire::kApart) return Way::kApart;
  if (Wire::kSmall) return Way::kSmall;
  return std::is_same_v<Wire, LL16> ? Way::kLL16 : way_of(Wire::kProtocol);
}

/// A set's places for a row of the table and a way.
struct Places {
  KernelSet& set;
  const algorithm::Row& row;
  Way way;

  template <class Kernel>
  void put(Use use, Kernel* kernel) const {
    set.put(row.what, row.algorithm, way, use, reinterpret_cast<const void*>(kernel));
  }
};

template <class Wire, DataType type, Combiner with, bool kReduces>
void add_kernels(KernelSet& set) {
  using Shared = decltype(shared_entries<Wire, type, with, kReduces>(algorithm::List<>{}, algorithm::Table{}));
  algorithm::Table::for_each([&](auto entry) {
    using Entry = decltype(entry);
    constexpr algorithm::Row row = Entry::row;
    if constexpr (reduces(row.what) == kReduces && is_built<Wire, type, with, Entry>()) {
      const Places places{set, row, way_of<Wire>()};
      using Own = algorithm::List<Entry>;
      constexpr bool kHot = is_hot<Wire, type, with, Entry>();
      if constexpr (kHot) {
        places.put(Use::kUsual, &run_collectives<Wire, type, with, Own, true, usual_bounds<Wire>(row)>);
      } else {
        places.put(Use::kUsual, &run_collectives<Wire, type, with, Shared, false, Bounds::kPieces>);
      }
      if constexpr (kHot && has_words<Wire, type, with>(row.what)) {
        places.put(Use::kWords, &run_collectives<Wire, type, with, Own, true, bounds_of_words(row.what)>);
      }
      if constexpr ((kHot && has_grains<Wire, type, with>(row)) || has_small_grains<Wire, type, with>(row)) {
        places.put(Use::kGrains, &run_collectives<Wire, type, with, Own, true, bounds_of_grains(row.what, type)>);
      }
    }
  });
}

/// The entries of the table that may be brief, in so many steps, and reduce (or do not).
template <class Wire, DataType type, Combiner with, bool kReduces, uint32_t kSteps, class... Chosen, class Entry,
          class... More>
constexpr auto brief_entries(algorithm::List<Chosen...>, algorithm::List<Entry, More...>) {
  constexpr uint32_t steps = steps_if_brief(Entry::row.what, Entry::row.algorithm, Wire::kProtocol, type, with);
  constexpr bool fits = steps == kSteps && reduces(Entry::row.what) == kReduces;
  using Found = std::conditional_t<fits, algorithm::List<Chosen..., Entry>, algorithm::List<Chosen...>>;
  if constexpr (sizeof...(More) == 0) {
    return Found{};
  } else {
    return brief_entries<Wire, type, with, kReduces, kSteps>(Found{}, algorithm::List<More...>{});
  }
}

template <class Wire, DataType type, Combiner with, bool kReduces, uint32_t kSteps>
void add_brief_kernels(KernelSet& set) {
  using Brief = decltype(brief_entries<Wire, type, with, kReduces, kSteps>(algorithm::List<>{}, algorithm::Table{}));
  Brief::for_each([&](auto entry) {
    using Entry = decltype(entry);
    constexpr algorithm::Row row = Entry::row;
    const Places places{set, row, brief_way_of(Wire::kProtocol)};
    places.put(Use::kUsual, &run_plain<Wire, type, with, Entry, Bounds::kPieces>);
    if constexpr (has_brief_words<Wire, type, with>(row.what)) {
      places.put(Use::kWords, &run_plain<Wire, type, with, Entry, bounds_of_words(row.what)>);
    }
    if constexpr (has_brief_grains<Wire, type, with>(row.what)) {
      places.put(Use::kGrains, &run_plain<Wire, type, with, Entry, bounds_of_grains(row.what, type)>);
    }
    using Sharing = std::conditional_t<kSteps == 1, Brief, algorithm::List<Entry>>;  // two would have registers spilled
    places.put(Use::kAny, &run_any<Wire, type, with, Sharing, kSteps>);
  });
}

template <DataType type, Combiner with, bool kReduces>
void add_joined_kernels(KernelSet& set) {
  algorithm::Table::for_each([&](auto entry) {
    using Entry = decltype(entry);
    constexpr algorithm::Row row = Entry::row;
    if constexpr (reduces(row.what) == kReduces && algorithm::suits_joined_parts(row.what, row.algorithm, type)) {
      static_assert(row.apart);
      using Wire = Joined<kReduces>;
      const Places places{set, row, way_of<Wire>()};
      places.put(Use::kUsual, &run_joined<Wire, type, with, Entry, Bounds::kPieces>);
      if constexpr (kReduces && is_often_cut(row.what, type)) {  // of what does not reduce all is done by movers
        places.put(Use::kGrains, &run_joined<Wire, type, with, Entry, bounds_of_grains(row.what, type)>);
      }
    }
  });
}

template <DataType type, Combiner with, bool kReduces>
KernelSet make_kernel_set() {
  KernelSet set;
  add_brief_kernels<LL8, type, with, kReduces, 1>(set);
  add_brief_kernels<LL128, type, with, kReduces, 1>(set);
  add_brief_kernels<LL128, type, with, kReduces, 2>(set);
  add_kernels<LL8, type, with, kReduces>(set);
  add_kernels<LL128, type, with, kReduces>(set);
  if constexpr (with != Combiner::kOther) {
    add_kernels<LL16, type, with, kReduces>(set);
    add_kernels<Apart<kReduces>, type, with, kReduces>(set);
    add_joined_kernels<type, with, kReduces>(set);
  }
  add_kernels<Small, type, with, kReduces>(set);
  add_kernels<Simple, type, with, kReduces>(set);
  if constexpr (with == Combiner::kSum) {
    set.put_alone(reinterpret_cast<const void*>(
        &run_collectives<Simple, type, with, algorithm::Table, true, Bounds::kPieces, true>));
  }
  return set;
}

}  // namespace nitinol::cuda
