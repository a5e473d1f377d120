#include "executor/cpu/primitives.h"

#include <algorithm>
#include <cstring>

#include "executor/cpu/reduce.h"

namespace nitinol::cpu {

using algorithm::Flow;
using algorithm::Operands;
using algorithm::Peers;

namespace {

void copy_unless_same(std::byte* into, const std::byte* from, size_t bytes) {
  if (into != from) std::memcpy(into, from, bytes);
}

}  // namespace

Primitives::Primitives(Rank& rank, Workspace& workspace, const CollectiveWork& work)
    : rank_(rank), workspace_(workspace), work_(work), element_bytes_(bytes_of(work.type)) {
  const ReduceTable& table = reduce_table();
  const auto type = static_cast<size_t>(work.type);
  combine_ = table.combine[static_cast<size_t>(work.reduction.combine)][type];
  average_ = work.reduction.average ? table.average[type] : combine_;
  premultiply_ = table.premultiply[type];
  if (!reduces(work.what)) return;
  switch (work.reduction.scalar) {
    case Reduction::Scalar::kNone: break;
    case Reduction::Scalar::kImmediate:
      has_scalar_ = true;
      std::memcpy(scalar_.data(), &work.reduction.immediate, element_bytes_);
      break;
    case Reduction::Scalar::kDevice:
      has_scalar_ = true;
      std::memcpy(scalar_.data(), work.reduction.pointer, element_bytes_);
      break;
  }
}

void Primitives::copy_to_peer(int peer, const std::byte* from, size_t bytes) {
  std::memcpy(rank_.free_data(rank_.link_to(peer, Lane::kCollectives), Lane::kCollectives, bytes), from, bytes);
  rank_.publish(peer, Lane::kCollectives, bytes);
}

/// Waits for a slot of so many bytes from the peer.
bool Primitives::await_payload(int peer, size_t bytes) {
  if (!rank_.await_filled(peer, Lane::kCollectives)) return false;
  if (rank_.fits(rank_.link_to(peer, Lane::kCollectives), bytes)) return true;
  rank_.report_mismatch(peer);
  return false;
}

void Primitives::push(const Flow& flow, const Operands& operands) {
  if (rank_.stopped()) return;
  const std::byte* const from = source(operands.own);
  const size_t bytes = operands.count * element_bytes_;
  // Each peer gets its copy as soon as it has room: that only lets others run earlier than the definition says.
  const bool done = each(flow.to, operands.to, [&](int peer) {
    if (!rank_.await_free(peer, Lane::kCollectives)) return false;
    copy_to_peer(peer, from, bytes);
    return true;
  });
  if (done && flow.into) copy_unless_same(sink(operands.into), from, bytes);
}

void Primitives::pass_on(const Flow& flow, const Operands& operands) {
  if (rank_.stopped()) return;
  const size_t bytes = operands.count * element_bytes_;
  if (!await_payload(operands.from, bytes)) return;
  const std::byte* const from =
      rank_.filled_data(rank_.link_to(operands.from, Lane::kCollectives), Lane::kCollectives, bytes);
  const bool done = each(flow.to, operands.to, [&](int peer) {
    if (!rank_.await_free(peer, Lane::kCollectives)) return false;
    copy_to_peer(peer, from, bytes);
    return true;
  });
  if (!done) return;
  if (flow.into) std::memcpy(sink(operands.into), from, bytes);
  rank_.release(operands.from, Lane::kCollectives);
}

bool Primitives::await_sources(const Flow& flow, const Operands& operands, size_t bytes) {
  return each(flow.from, operands.from, [&](int peer) { return await_payload(peer, bytes); });
}

bool Primitives::await_sinks(const Flow& flow, const Operands& operands) {
  return each(flow.to, operands.to, [&](int peer) { return rank_.await_free(peer, Lane::kCollectives); });
}

Primitives::Sources Primitives::collect_sources(const Flow& flow, const Operands& operands, size_t bytes) {
  Sources sources;
  const auto add = [&](const std::byte* data) { workspace_.sources[static_cast<size_t>(sources.count++)] = data; };
  const auto add_slot = [&](int peer) {
    add(rank_.filled_data(rank_.link_to(peer, Lane::kCollectives), Lane::kCollectives, bytes));
  };
  const auto add_own = [&] {
    if (scales(operands.own)) sources.own = sources.count;
    add(source(operands.own));
  };
  if (flow.from == Peers::kAll) {
    for (int peer = 0; peer < ranks(); ++peer) {
      if (peer != rank()) {
        add_slot(peer);
      } else if (flow.own) {
        add_own();
      }
    }
  } else {
    if (flow.from == Peers::kOne) add_slot(operands.from);
    if (flow.own) add_own();
  }
  return sources;
}

void Primitives::collect_sinks(const Flow& flow, const Operands& operands, size_t bytes) {
  workspace_.sinks.clear();
  if (flow.into) workspace_.sinks.push_back(sink(operands.into));
  each(flow.to, operands.to, [&](int peer) {
    workspace_.sinks.push_back(rank_.free_data(rank_.link_to(peer, Lane::kCollectives), Lane::kCollectives, bytes));
    return true;
  });
}

/// Combines the sources into the first sink and copies from there to the others, block by block.
void Primitives::combine_blocks(const Sources& sources, size_t count, bool finish) {
  const ReduceFunction function = finish ? average_ : combine_;
  const size_t per_block = Workspace::kBlockBytes / element_bytes_;
  const void** const from = workspace_.block_sources.data();
  for (size_t begin = 0; begin < count; begin += per_block) {
    const size_t elements = std::min(per_block, count - begin);
    const size_t offset = begin * element_bytes_;
    for (int i = 0; i < sources.count; ++i) from[i] = workspace_.sources[static_cast<size_t>(i)] + offset;
    if (sources.own >= 0) {
      premultiply_(workspace_.scaled.data(), from[sources.own], scalar_.data(), elements);
      from[sources.own] = workspace_.scaled.data();
    }
    std::byte* const first = workspace_.sinks[0] + offset;
    if (sources.count == 1 && !(finish && work_.reduction.average)) {
      copy_unless_same(first, static_cast<const std::byte*>(from[0]), elements * element_bytes_);
    } else {
      function(first, from, sources.count, elements, ranks());
    }
    for (size_t i = 1; i < workspace_.sinks.size(); ++i) {
      std::memcpy(workspace_.sinks[i] + offset, first, elements * element_bytes_);
    }
  }
}

void Primitives::reduce(const Flow& flow, const Operands& operands) {
  if (rank_.stopped()) return;
  const size_t bytes = operands.count * element_bytes_;
  if (!await_sources(flow, operands, bytes) || !await_sinks(flow, operands)) return;
  const Sources sources = collect_sources(flow, operands, bytes);
  collect_sinks(flow, operands, bytes);
  combine_blocks(sources, operands.count, flow.finish);
  each(flow.to, operands.to, [&](int peer) {
    rank_.publish(peer, Lane::kCollectives, bytes);
    return true;
  });
  each(flow.from, operands.from, [&](int peer) {
    rank_.release(peer, Lane::kCollectives);
    return true;
  });
}

void Primitives::run_alone() {
  const algorithm::Span in = algorithm::input(0, work_.count);
  const algorithm::Span out = algorithm::output(0, work_.count);
  if (has_scalar_) {
    reduce_alone(in, out);
  } else {
    copy(in, out);
  }
}

void run_collective(Rank& rank, Workspace& workspace, const CollectiveWork& work) {
  if (rank.ranks() == 1) {
    if (work.count > 0 && !rank.stopped()) Primitives(rank, workspace, work).run_alone();
    return;
  }
  if (rank.stopped()) return;  // and do not say that it has begun
  rank.begin_collective(work);
  if (work.count == 0) return rank.end_collective();
  Primitives primitives(rank, workspace, work);
  const size_t most = rank.slot_bytes(Lane::kCollectives) / bytes_of(work.type);
  const size_t chunk = work.plan.chunk == 0 ? most : std::min(work.plan.chunk, most);
  const Share share{.begin = 0, .end = work.count, .chunk = chunk, .stride = work.count};
  if (!algorithm::run(work.what, work.plan.algorithm, primitives, share)) {
    rank.report(ncclInternalError,
                formatted("there is no algorithm {} for {}", name_of(work.plan.algorithm), name_of(work.what)));
  }
  rank.end_collective();
}

}  // namespace nitinol::cpu
