// Which other ranks a collective exchanges anything with: what an executor has to reach before it runs.
#pragma once

#include <vector>

#include "algorithm/table.h"

namespace nitinol::cpu {

/// Primitives that only note whom they would deal with.
class PeerCollector : public algorithm::Verbs<PeerCollector> {
 public:
  PeerCollector(int rank, int ranks, int root, bool any_order)
      : rank_(rank), root_(root), any_order_(any_order), needed_(static_cast<size_t>(ranks)) {}

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(needed_.size()); }
  int root() const { return root_; }
  bool any_order() const { return any_order_; }

  template <algorithm::Flow flow>
  void transfer(const algorithm::Operands& operands) {
    note(flow.from, operands.from);
    note(flow.to, operands.to);
  }

  /// One flag per rank.
  const std::vector<bool>& needed() const { return needed_; }

 private:
  void note(algorithm::Peers peers, int one) {
    switch (peers) {
      case algorithm::Peers::kNone: break;
      case algorithm::Peers::kOne: needed_[static_cast<size_t>(one)] = true; break;
      case algorithm::Peers::kAll:
      case algorithm::Peers::kAllBut: needed_.assign(needed_.size(), true); break;
    }
  }

  int rank_;
  int root_;
  bool any_order_;
  std::vector<bool> needed_;
};

/// The ranks that `rank` needs for the collective, whatever its size. Flags; that of the rank itself means nothing.
inline std::vector<bool> peers_of(Collective what, Algorithm algorithm, const PeerCollector& blank) {
  PeerCollector collector = blank;
  // One full round of blocks of the size that they are aligned to: nobody's block is empty.
  constexpr size_t block = 16;
  const size_t count = block * static_cast<size_t>(blank.ranks());
  algorithm::run(what, algorithm, collector, Share{.begin = 0, .end = count, .chunk = block, .stride = count});
  return collector.needed();
}

}  // namespace nitinol::cpu
