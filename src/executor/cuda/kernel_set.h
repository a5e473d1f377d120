// Which kernels a build has, and how those are found that a launch needs: for each type those that sum and those that
// combine otherwise; such that only move bytes; and those of messages.
#pragma once

#include <array>
#include <cstddef>

#include "executor/cuda/combiner.h"
#include "executor/cuda/parameters.h"

namespace nitinol::cuda {

/// How a kernel exchanges data: wires, of the usual CTAs or others (wires.h).
enum class Way : int {
  kLL,
  kLL128,
  kSimple,
  kLL16,    ///< what goes in lines
  kSmall,   ///< Simple with small CTAs,
  kApart,   ///< and with such for each part of a rank's program,
  kJoined,  ///< or the parts of a channel in one
  kBriefLL,
  kBriefLL128
};
inline constexpr int kWays = 9;
constexpr Way way_of(Protocol protocol) { return static_cast<Way>(protocol); }
static_assert(way_of(Protocol::kSimple) == Way::kSimple);
/// Of what is brief.
constexpr Way brief_way_of(Protocol protocol) { return protocol == Protocol::kLL ? Way::kBriefLL : Way::kBriefLL128; }

/// Where what it is for begins and ends (Bounds in layout.h), among the kernels of a way that do the same.
enum class Use : int {
  kUsual,   ///< in whole pieces, or wherever it is as fast (usual_bounds)
  kWords,   ///< with words
  kGrains,  ///< elsewhere
  kAny      ///< anywhere, if it is brief; and averages and scalars
};
inline constexpr int kUses = 4;

/// The kernels for one type and combiner, as the launch functions of the CUDA runtime take them. Null: there is none.
class KernelSet {
 public:
  const void* at(Collective what, Algorithm algorithm, Way way, Use use) const {
    return kernels_[place_of(what, algorithm, way, use)];
  }
  void put(Collective what, Algorithm algorithm, Way way, Use use, const void* kernel) {
    kernels_[place_of(what, algorithm, way, use)] = kernel;
  }
  /// For a communicator of one rank, which applies a scalar: all else is copies, for which CUDA has its own.
  const void* alone() const { return alone_; }
  void put_alone(const void* kernel) { alone_ = kernel; }

  /// Calls visit(what, way, kernel) for each place of the table, also where there is no kernel.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (size_t place = 0; place < kPlaces; ++place) {
      const auto what = static_cast<Collective>(place / kUses / kWays / kAlgorithms);
      visit(what, static_cast<Way>(place / kUses % kWays), kernels_[place]);
    }
  }

 private:
  static constexpr size_t kPlaces = size_t{kCollectives} * kAlgorithms * kWays * kUses;
  static constexpr size_t place_of(Collective what, Algorithm algorithm, Way way, Use use) {
    const size_t row = static_cast<size_t>(what) * kAlgorithms + static_cast<size_t>(algorithm);
    return (row * kWays + static_cast<size_t>(way)) * kUses + static_cast<size_t>(use);
  }

  std::array<const void*, kPlaces> kernels_{};
  const void* alone_ = nullptr;
};

/// Defined in the generated files, one for each type and combiner of the build.
template <DataType type, Combiner with>
const KernelSet& reduce_kernels();
const KernelSet& move_kernels();

/// The kernels of a reduction; null if the build leaves it out.
const KernelSet* find_reduce_kernels(DataType type, Combiner with);

/// By protocol, for launches of FewMessages, MoreMessages and ManyMessages. `in_rows`: of CTAs that carry kMostRows
/// lanes each.
using MessageKernels = std::array<std::array<const void*, kProtocols>, 3>;
MessageKernels message_kernels(bool in_rows);
/// For messages that begin between vectors. Null: there are none.
MessageKernels message_kernels_between_vectors(bool in_rows);

}  // namespace nitinol::cuda
