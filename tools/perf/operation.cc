// Layouts, expectations and calls of the measured operations.
#include "operation.h"

#include <algorithm>
#include <array>
#include <bit>

#include "library.h"

namespace nitinol::perf {
namespace {

constexpr std::array<OperationTraits, 10> kOperations{{
    {Operation::kAllReduce, "all_reduce", true, false, true, false, false},
    {Operation::kAllGather, "all_gather", false, false, true, false, true},
    {Operation::kReduceScatter, "reduce_scatter", true, false, true, true, false},
    {Operation::kBroadcast, "broadcast", false, true, true, false, false},
    {Operation::kReduce, "reduce", true, true, true, false, false},
    {Operation::kAllToAll, "all_to_all", false, false, false, true, true},
    {Operation::kGather, "gather", false, true, true, false, true},
    {Operation::kScatter, "scatter", false, true, true, true, false},
    {Operation::kSendRecv, "sendrecv", false, false, false, false, false},
    {Operation::kHypercube, "hypercube", false, false, true, false, true},
}};

const std::byte* at(const void* base, size_t elements, const Call& call) {
  return static_cast<const std::byte*>(base) + elements * call.element_size;
}

std::byte* at(void* base, size_t elements, const Call& call) {
  return static_cast<std::byte*>(base) + elements * call.element_size;
}

bool failed(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

// Runs `body` between group start and end; the first failure wins.
template <typename Body>
ncclResult_t grouped(const NcclFunctions& nccl, const Body& body) {
  const ncclResult_t start = nccl.group_start();
  if (failed(start)) return start;
  const ncclResult_t inside = body();
  const ncclResult_t end = nccl.group_end();
  return failed(inside) ? inside : end;
}

ncclResult_t all_to_all(const NcclFunctions& nccl, const Call& c) {
  if (nccl.all_to_all) return nccl.all_to_all(c.send, c.recv, c.count, c.type, c.comm, c.stream);
  return grouped(nccl, [&] {
    for (int peer = 0; peer < c.where.ranks; ++peer) {
      const size_t offset = static_cast<size_t>(peer) * c.count;
      ncclResult_t result = nccl.send(at(c.send, offset, c), c.count, c.type, peer, c.comm, c.stream);
      if (!failed(result)) result = nccl.recv(at(c.recv, offset, c), c.count, c.type, peer, c.comm, c.stream);
      if (failed(result)) return result;
    }
    return ncclSuccess;
  });
}

ncclResult_t gather(const NcclFunctions& nccl, const Call& c) {
  if (nccl.gather) return nccl.gather(c.send, c.recv, c.count, c.type, c.where.root, c.comm, c.stream);
  return grouped(nccl, [&] {
    ncclResult_t result = nccl.send(c.send, c.count, c.type, c.where.root, c.comm, c.stream);
    for (int peer = 0; c.where.rank == c.where.root && peer < c.where.ranks && !failed(result); ++peer) {
      void* block = at(c.recv, static_cast<size_t>(peer) * c.count, c);
      result = nccl.recv(block, c.count, c.type, peer, c.comm, c.stream);
    }
    return result;
  });
}

ncclResult_t scatter(const NcclFunctions& nccl, const Call& c) {
  if (nccl.scatter) return nccl.scatter(c.send, c.recv, c.count, c.type, c.where.root, c.comm, c.stream);
  return grouped(nccl, [&] {
    ncclResult_t result = nccl.recv(c.recv, c.count, c.type, c.where.root, c.comm, c.stream);
    for (int peer = 0; c.where.rank == c.where.root && peer < c.where.ranks && !failed(result); ++peer) {
      const void* block = at(c.send, static_cast<size_t>(peer) * c.count, c);
      result = nccl.send(block, c.count, c.type, peer, c.comm, c.stream);
    }
    return result;
  });
}

ncclResult_t ring_shift(const NcclFunctions& nccl, const Call& c) {
  const int ranks = c.where.ranks;
  return grouped(nccl, [&] {
    const ncclResult_t result = nccl.send(c.send, c.count, c.type, (c.where.rank + 1) % ranks, c.comm, c.stream);
    if (failed(result)) return result;
    return nccl.recv(c.recv, c.count, c.type, (c.where.rank + ranks - 1) % ranks, c.comm, c.stream);
  });
}

// The own block goes into place by a send to oneself; then dimension k doubles what each rank holds.
ncclResult_t hypercube(const NcclFunctions& nccl, const Call& c, int step) {
  const bool is_own = step == 0;
  const int span = is_own ? 1 : 1 << (step - 1);
  const int peer = is_own ? c.where.rank : c.where.rank ^ span;
  const size_t length = static_cast<size_t>(span) * c.count;
  void* theirs = at(c.recv, static_cast<size_t>(peer & ~(span - 1)) * c.count, c);
  const void* mine = is_own ? c.send : at(c.recv, static_cast<size_t>(c.where.rank & ~(span - 1)) * c.count, c);
  if (mine == theirs) return ncclSuccess;
  return grouped(nccl, [&] {
    const ncclResult_t sent = nccl.send(mine, length, c.type, peer, c.comm, c.stream);
    return failed(sent) ? sent : nccl.recv(theirs, length, c.type, peer, c.comm, c.stream);
  });
}

std::vector<Segment> blocks_of_all(size_t count, int ranks, size_t source_index) {
  std::vector<Segment> segments;
  for (int source = 0; source < ranks; ++source) {
    segments.push_back({static_cast<size_t>(source) * count, count, source, source_index});
  }
  return segments;
}

}  // namespace

std::span<const OperationTraits> all_operations() { return kOperations; }

const OperationTraits& traits_of(Operation operation) { return kOperations.at(static_cast<size_t>(operation)); }

const OperationTraits* find_operation(const std::string& name) {
  const auto same = [&](const OperationTraits& traits) { return name == traits.name; };
  const auto found = std::ranges::find_if(kOperations, same);
  return found == kOperations.end() ? nullptr : &*found;
}

double bus_factor(Operation operation, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (operation) {
    case Operation::kAllReduce: return 2 * others;
    case Operation::kAllGather:
    case Operation::kReduceScatter:
    case Operation::kAllToAll:
    case Operation::kGather:
    case Operation::kScatter:
    case Operation::kHypercube: return others;
    case Operation::kBroadcast:
    case Operation::kReduce:
    case Operation::kSendRecv: return 1;
  }
  return 1;
}

Layout layout_of(Operation operation, size_t count, int rank, int ranks) {
  const OperationTraits& traits = traits_of(operation);
  const size_t all = count * static_cast<size_t>(ranks);
  const size_t own = count * static_cast<size_t>(rank);
  return {
      .count = count,
      .send = traits.blocks_send ? all : count,
      .recv = traits.blocks_recv ? all : count,
      .send_offset = traits.blocks_recv ? own : 0,
      .recv_offset = traits.blocks_send ? own : 0,
  };
}

size_t count_for_bytes(Operation operation, size_t bytes, size_t element_size, int ranks) {
  if (bytes == 0) return 0;
  const OperationTraits& traits = traits_of(operation);
  const size_t blocks = traits.blocks_send || traits.blocks_recv ? static_cast<size_t>(ranks) : 1;
  return std::max<size_t>(1, bytes / element_size / blocks);
}

std::vector<Segment> expected_segments(Operation operation, size_t count, const Placement& where) {
  const size_t own = static_cast<size_t>(where.rank) * count;
  const bool is_root = where.rank == where.root;
  switch (operation) {
    case Operation::kAllReduce: return {{0, count, Segment::kReduced, 0}};
    case Operation::kReduce:
      return is_root ? std::vector<Segment>{{0, count, Segment::kReduced, 0}} : std::vector<Segment>{};
    case Operation::kReduceScatter: return {{0, count, Segment::kReduced, own}};
    case Operation::kAllGather:
    case Operation::kHypercube: return blocks_of_all(count, where.ranks, 0);
    case Operation::kGather: return is_root ? blocks_of_all(count, where.ranks, 0) : std::vector<Segment>{};
    case Operation::kAllToAll: return blocks_of_all(count, where.ranks, own);
    case Operation::kBroadcast: return {{0, count, where.root, 0}};
    case Operation::kScatter: return {{0, count, where.root, own}};
    case Operation::kSendRecv: return {{0, count, (where.rank + where.ranks - 1) % where.ranks, 0}};
  }
  return {};
}

int steps_of(Operation operation, int ranks) {
  return operation == Operation::kHypercube ? 1 + std::countr_zero(static_cast<unsigned>(ranks)) : 1;
}

ncclResult_t enqueue(const NcclFunctions& nccl, const Call& c, int step) {
  switch (c.operation) {
    case Operation::kAllReduce: return nccl.all_reduce(c.send, c.recv, c.count, c.type, c.redop, c.comm, c.stream);
    case Operation::kAllGather: return nccl.all_gather(c.send, c.recv, c.count, c.type, c.comm, c.stream);
    case Operation::kReduceScatter:
      return nccl.reduce_scatter(c.send, c.recv, c.count, c.type, c.redop, c.comm, c.stream);
    case Operation::kBroadcast: return nccl.broadcast(c.send, c.recv, c.count, c.type, c.where.root, c.comm, c.stream);
    case Operation::kReduce:
      return nccl.reduce(c.send, c.recv, c.count, c.type, c.redop, c.where.root, c.comm, c.stream);
    case Operation::kAllToAll: return all_to_all(nccl, c);
    case Operation::kGather: return gather(nccl, c);
    case Operation::kScatter: return scatter(nccl, c);
    case Operation::kSendRecv: return ring_shift(nccl, c);
    case Operation::kHypercube: return hypercube(nccl, c, step);
  }
  return ncclInvalidArgument;
}

}  // namespace nitinol::perf
