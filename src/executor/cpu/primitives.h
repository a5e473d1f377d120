// The primitives of algorithm/primitives.h, carried out by a thread on the queues between ranks.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "algorithm/table.h"
#include "executor/cpu/rank.h"
#include "executor/cpu/reduce_table.h"

namespace nitinol::cpu {

/// Room that a rank's operations share, so that they need not allocate.
struct Workspace {
  /// So much is combined at a time: what is written to one sink is still in the first-level cache for the next.
  static constexpr size_t kBlockBytes = 16 << 10;

  explicit Workspace(int ranks) : sources(static_cast<size_t>(ranks)), block_sources(static_cast<size_t>(ranks)) {
    sinks.reserve(static_cast<size_t>(ranks));
  }

  std::vector<const std::byte*> sources;
  std::vector<const void*> block_sources;
  std::vector<std::byte*> sinks;
  alignas(64) std::array<std::byte, kBlockBytes> scaled;
};

/// One collective while it runs.
class Primitives : public algorithm::Verbs<Primitives> {
 public:
  Primitives(Rank& rank, Workspace& workspace, const CollectiveWork& work);

  int rank() const { return rank_.rank(); }
  int ranks() const { return rank_.ranks(); }
  int root() const { return work_.root; }
  bool any_order() const { return work_.any_order(); }

  template <algorithm::Flow flow>
  void transfer(const algorithm::Operands& operands) {
    constexpr bool incoming = flow.from != algorithm::Peers::kNone;
    constexpr bool combines = flow.own && incoming;
    if constexpr (combines) {
      reduce(flow, operands);
    } else if constexpr (incoming) {
      pass_on(flow, operands);
    } else if (flow.own && scales(operands.own)) {
      reduce(flow, operands);
    } else {
      push(flow, operands);
    }
  }

  /// What a communicator of one rank does.
  void run_alone();

 private:
  bool scales(const algorithm::Span& own) const { return has_scalar_ && own.side == algorithm::Side::kInput; }

  /// The own span, as it is, to sinks.
  void push(const algorithm::Flow& flow, const algorithm::Operands& operands);
  /// One slot, as it is, to sinks.
  void pass_on(const algorithm::Flow& flow, const algorithm::Operands& operands);
  /// Several sources, or one with a scalar or average, to sinks.
  void reduce(const algorithm::Flow& flow, const algorithm::Operands& operands);

  struct Sources {
    int count = 0;
    int own = -1;  ///< which of them is the own span, if its elements need the scalar
  };
  bool await_sources(const algorithm::Flow& flow, const algorithm::Operands& operands, size_t bytes);
  bool await_sinks(const algorithm::Flow& flow, const algorithm::Operands& operands);
  Sources collect_sources(const algorithm::Flow& flow, const algorithm::Operands& operands, size_t bytes);
  void collect_sinks(const algorithm::Flow& flow, const algorithm::Operands& operands, size_t bytes);
  void combine_blocks(const Sources& sources, size_t count, bool finish);
  void copy_to_peer(int peer, const std::byte* from, size_t bytes);
  bool await_payload(int peer, size_t bytes);

  /// Calls visit(peer) for each of the peers, the next one first; stops when it returns false.
  template <class Visit>
  bool each(algorithm::Peers peers, int one, Visit&& visit) {
    if (peers == algorithm::Peers::kNone) return true;
    if (peers == algorithm::Peers::kOne) return visit(one);
    for (int distance = 1; distance < ranks(); ++distance) {
      const int peer = algorithm::rank_after(rank(), distance, ranks());
      if (peers == algorithm::Peers::kAllBut && peer == one) continue;
      if (!visit(peer)) return false;
    }
    return true;
  }

  const std::byte* source(const algorithm::Span& span) const {
    const auto* base = static_cast<const std::byte*>(span.side == algorithm::Side::kInput ? work_.input : work_.output);
    return base + span.offset * element_bytes_;
  }
  std::byte* sink(const algorithm::Span& span) const {
    return static_cast<std::byte*>(work_.output) + span.offset * element_bytes_;
  }

  Rank& rank_;
  Workspace& workspace_;
  const CollectiveWork& work_;
  size_t element_bytes_;
  ReduceFunction combine_;
  ReduceFunction average_;
  PremultiplyFunction premultiply_;
  bool has_scalar_ = false;
  std::array<std::byte, 8> scalar_{};
};

/// Carries one collective out. The rank's lock is held.
void run_collective(Rank& rank, Workspace& workspace, const CollectiveWork& work);

}  // namespace nitinol::cpu
