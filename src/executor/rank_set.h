// A set of ranks that reach each other's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace nitinol {

/// A bit for each rank.
struct RankSet {
  std::array<uint64_t, 2> bits{};
  friend bool operator==(const RankSet&, const RankSet&) = default;

  static constexpr int kMostRanks = 128;
  void add(int rank) { bits[static_cast<size_t>(rank / 64)] |= uint64_t{1} << rank % 64; }
  void add(const RankSet& others) {
    for (size_t i = 0; i < bits.size(); ++i) bits[i] |= others.bits[i];
  }
  void keep(const RankSet& others) {
    for (size_t i = 0; i < bits.size(); ++i) bits[i] &= others.bits[i];
  }
  void remove(int rank) {
    if (rank < kMostRanks) bits[static_cast<size_t>(rank / 64)] &= ~(uint64_t{1} << rank % 64);
  }
  bool has(int rank) const { return rank < kMostRanks && (bits[static_cast<size_t>(rank / 64)] >> rank % 64 & 1) != 0; }
  bool any() const { return (bits[0] | bits[1]) != 0; }
};

}  // namespace nitinol
