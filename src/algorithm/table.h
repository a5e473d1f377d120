// The one table of algorithms. A new algorithm is one file and one row here; executors, verifier and tuning read it.
#pragma once

#include "algorithm/all_gather_one_shot.h"
#include "algorithm/all_reduce_one_shot.h"
#include "algorithm/all_reduce_two_shot.h"
#include "algorithm/all_to_all_one_shot.h"
#include "algorithm/broadcast_one_shot.h"
#include "algorithm/broadcast_two_shot.h"
#include "algorithm/gather_one_shot.h"
#include "algorithm/reduce_one_shot.h"
#include "algorithm/reduce_scatter_one_shot.h"
#include "algorithm/reduce_two_shot.h"
#include "algorithm/ring.h"
#include "algorithm/scatter_one_shot.h"
#include "algorithm/tree.h"

namespace nitinol::algorithm {

/// A list of algorithms: a type whose only use is to be walked.
template <class... Entries>
struct List {
  template <class Visit>
  static constexpr void for_each(Visit&& visit) {
    (visit(Entries{}), ...);
  }
};

using Table = List<AllReduceOneShot, AllReduceTwoShot, AllReduceRing, AllReduceTree,  //
                   ReduceScatterOneShot, ReduceScatterRing,                           //
                   ReduceOneShot, ReduceTwoShot, ReduceRing,                          //
                   BroadcastOneShot, BroadcastTwoShot, BroadcastRing, BroadcastTree,  //
                   AllGatherOneShot, AllGatherRing,                                   //
                   AllToAllOneShot, GatherOneShot, ScatterOneShot>;

/// Runs the algorithm on one rank and channel; false if the table has no such row. More than one rank is needed.
template <class P>
bool run(Collective what, Algorithm algorithm, P& p, const Share& share) {
  if (share.begin >= share.end) return true;
  bool found = false;
  Table::for_each([&](auto entry) {
    using Entry = decltype(entry);
    if (Entry::row.what != what || Entry::row.algorithm != algorithm) return;
    Entry::run(p, share);
    found = true;
  });
  return found;
}

/// What the table says about each pair of collective and algorithm, for quick questions.
struct Index {
  bool exists[kCollectives][kAlgorithms] = {};
  bool canonical[kCollectives][kAlgorithms] = {};
  bool canonical_to_ends[kCollectives][kAlgorithms] = {};
  bool apart[kCollectives][kAlgorithms] = {};

  constexpr Index() {
    Table::for_each([&](auto entry) {
      constexpr Row row = decltype(entry)::row;
      exists[static_cast<int>(row.what)][static_cast<int>(row.algorithm)] = true;
      canonical[static_cast<int>(row.what)][static_cast<int>(row.algorithm)] = row.canonical;
      canonical_to_ends[static_cast<int>(row.what)][static_cast<int>(row.algorithm)] = row.canonical_to_ends;
      apart[static_cast<int>(row.what)][static_cast<int>(row.algorithm)] = row.apart;
    });
  }
};
inline constexpr Index kIndex;

constexpr bool exists(Collective what, Algorithm algorithm) {
  return kIndex.exists[static_cast<int>(what)][static_cast<int>(algorithm)];
}

/// Whether results do not depend on sizes, chunks or channels (row.h). Only asked of what depends on the order of
/// ranks.
constexpr bool canonical(Collective what, Algorithm algorithm, DataType type, int root, int ranks) {
  const bool to_end = root < 2 || root == ranks - 1;
  return kIndex.canonical[static_cast<int>(what)][static_cast<int>(algorithm)] ||
         (kIndex.canonical_to_ends[static_cast<int>(what)][static_cast<int>(algorithm)] && to_end &&
          adds_in_own_width(type));
}

/// Whether it may run in parts (parts.h).
constexpr bool apart(Collective what, Algorithm algorithm) {
  return kIndex.apart[static_cast<int>(what)][static_cast<int>(algorithm)];
}

/// Whether the root takes from one other alone, in one shot.
constexpr bool is_reduce_of_pair(Collective what, Algorithm algorithm, int ranks) {
  return what == Collective::kReduce && algorithm == Algorithm::kOneShot && ranks == 2;
}

/// Whether each rank takes from one other alone, the one before it. `any_order`: the result does not depend on the
/// order of ranks.
constexpr bool goes_along_line(Collective what, Algorithm algorithm, int ranks, int root, bool any_order) {
  if (what == Collective::kBroadcast) return algorithm == Algorithm::kRing;
  if (what != Collective::kReduce) return false;
  return algorithm == Algorithm::kRing ? !changes_places(root, ranks, any_order)
                                       : is_reduce_of_pair(what, algorithm, ranks);
}

/// Whether GPUs have kernels for it in which parts have CTAs of their own. Reduces take as long or less by LL128.
constexpr bool suits_parts(Collective what, Algorithm algorithm) {
  return apart(what, algorithm) && what != Collective::kReduce;
}

/// Of reductions the types that are often reduced by megabytes: others have fewer kernels, so that the library stays
/// small.
constexpr bool is_often_long(Collective what, DataType type) {
  return !reduces(what) || (is_float(type) && bytes_of(type) >= 2);
}

/// Where blocks that are no multiples of 16 bytes may begin for GPUs to have kernels of LL128 for that, if it is a sum
/// that is_often_long() or moves data: with any multiple of so many bytes.
constexpr size_t grain_of_blocks(Collective what, DataType type) {
  return !reduces(what) ? 1 : bytes_of(type) == 2 ? 2 : 4;
}

/// Whether GPUs have fast kernels by which it goes in a ring. Sums of floats that are not added in their own width
/// would be rounded on the way. `sums`: it adds, or moves data.
constexpr bool suits_ring(Collective what, DataType type, bool sums) {
  return what == Collective::kBroadcast || (what == Collective::kReduce && (!sums || adds_in_own_width(type)));
}

/// Whether GPUs have kernels of small CTAs for it: where there is a gain. `sums`: it adds, or moves data.
constexpr bool suits_small_ctas(Collective what, Algorithm algorithm, DataType type, int ranks, bool sums) {
  const bool by_mesh =
      has_block_per_rank(what) ? algorithm == Algorithm::kOneShot : reduces(what) && algorithm == Algorithm::kTwoShot;
  if (algorithm == Algorithm::kRing) return suits_ring(what, type, sums);
  return by_mesh || is_reduce_of_pair(what, algorithm, ranks);
}

/// Whether GPUs have kernels for it in which the parts of a channel share a CTA, if it is a sum or moves data. Doubles
/// have none, so that the library stays small.
constexpr bool suits_joined_parts(Collective what, Algorithm algorithm, DataType type) {
  const bool sums = (what == Collective::kAllReduce && algorithm == Algorithm::kTwoShot) ||
                    (what == Collective::kReduceScatter && algorithm == Algorithm::kOneShot);
  const bool moves = what == Collective::kAllToAll && algorithm == Algorithm::kOneShot;
  return (sums && is_often_long(what, type) && bytes_of(type) <= 4) || moves;
}

/// Whether GPUs have kernels by which it goes, if it is a sum or moves data, in lines of 16 bytes (LL16 in wires.h).
constexpr bool suits_lines(Collective what, Algorithm algorithm, DataType type) {
  if (algorithm == Algorithm::kRing) return what == Collective::kBroadcast;
  return is_often_long(what, type) &&
         (algorithm == Algorithm::kOneShot || (what == Collective::kAllReduce && algorithm == Algorithm::kTwoShot));
}

/// Whether GPUs have kernels by which it is brief in two shots (executor/cuda/brief_connections.h), if it is a sum.
constexpr bool suits_two_brief_shots(Collective what, Algorithm algorithm, Protocol protocol, DataType type) {
  return reduces(what) && algorithm == Algorithm::kTwoShot && protocol == Protocol::kLL128 && is_often_long(what, type);
}

}  // namespace nitinol::algorithm
