// Gather to rank 0, broadcast from a rank, and the operations made of them.
#include "bootstrap/exchange.h"

#include <cstring>

#include "base/error.h"
#include "bootstrap/wire.h"

namespace nitinol {
namespace {

using Buffer = std::vector<std::byte>;

constexpr std::size_t kBlockHeader = 4 + 8;
// Whoever waits for the missing rank itself knows better whom to name: it gets this much longer.
constexpr std::chrono::seconds kGrace{3};

SharedBytes share(Buffer bytes) { return std::make_shared<const Buffer>(std::move(bytes)); }

void put_block(ByteWriter& writer, int rank, std::span<const std::byte> data) {
  writer.integer(static_cast<std::uint32_t>(rank));
  writer.integer(static_cast<std::uint64_t>(data.size()));
  writer.block(data.data(), data.size());
}

/// Sends to all neighbours but one.
void flood(Tree& tree, const OperationStep& step, const SharedBytes& payload, int except) {
  const int parent = tree.shape().parent(tree.rank());
  if (parent >= 0 && parent != except) tree.send(parent, step, payload);
  for (const int child : tree.shape().children(tree.rank())) {
    if (child != except) tree.send(child, step, payload);
  }
}

/// Collects the blocks of this rank and all below it. On rank 0 these are all ranks' blocks, elsewhere they went on.
Buffer gather(Tree& tree, const OperationStep& step, std::span<const std::byte> mine, Deadline deadline) {
  ByteWriter writer;
  put_block(writer, tree.rank(), mine);
  for (const int child : tree.shape().children(tree.rank())) {
    const Buffer part = tree.receive(child, step, deadline);
    writer.block(part.data(), part.size());
  }
  Buffer blocks = writer.take();
  const int parent = tree.shape().parent(tree.rank());
  if (parent < 0) return blocks;
  tree.send(parent, step, share(std::move(blocks)));
  return {};
}

/// From rank 0 to all: returns what everybody has then.
SharedBytes scatter_down(Tree& tree, const OperationStep& step, Buffer from_rank_0, Deadline deadline) {
  const int parent = tree.shape().parent(tree.rank());
  const SharedBytes payload = share(parent < 0 ? std::move(from_rank_0) : tree.receive(parent, step, deadline));
  flood(tree, step, payload, parent);
  return payload;
}

std::vector<RankBlock> checked_blocks(Tree& tree, const OperationStep& step, std::span<const std::byte> bytes) {
  auto blocks = decode_blocks(bytes, tree.nranks());
  std::vector<bool> seen(static_cast<std::size_t>(tree.nranks()));
  std::size_t distinct = 0;
  if (blocks) {
    for (const RankBlock& block : *blocks) {
      if (!seen[static_cast<std::size_t>(block.rank)]) ++distinct;
      seen[static_cast<std::size_t>(block.rank)] = true;
    }
  }
  if (!blocks || distinct != seen.size() || blocks->size() != seen.size()) {
    tree.fail_operation({tree.rank(), ncclInternalError,
                         formatted("{} brought rank {} a malformed message", step.text(), tree.rank())});
  }
  return std::move(*blocks);
}

/// On rank 0: puts equal blocks in rank order.
Buffer assemble(Tree& tree, const OperationStep& step, const Buffer& gathered, std::size_t bytes) {
  Buffer all(bytes * static_cast<std::size_t>(tree.nranks()));
  for (const RankBlock& block : checked_blocks(tree, step, gathered)) {
    if (block.data.size() != bytes) {
      tree.fail_operation({block.rank, ncclInvalidUsage,
                           formatted("rank {} gives {} bytes to {}, rank {} gives {}", block.rank, block.data.size(),
                                     step.text(), tree.rank(), bytes)});
    }
    if (bytes > 0) std::memcpy(all.data() + bytes * static_cast<std::size_t>(block.rank), block.data.data(), bytes);
  }
  return all;
}

void expect_size(Tree& tree, const OperationStep& step, std::size_t got, std::size_t wanted) {
  if (got == wanted) return;
  tree.fail_operation({tree.rank(), ncclInvalidUsage,
                       formatted("rank {} expects {} bytes from {} and gets {}: do all ranks pass the same size?",
                                 tree.rank(), wanted, step.text(), got)});
}

}  // namespace

std::optional<std::vector<RankBlock>> decode_blocks(std::span<const std::byte> bytes, int nranks) {
  ByteReader reader(bytes);
  std::vector<RankBlock> blocks;
  while (reader.ok() && reader.left() > 0) {
    const auto rank = reader.integer<std::uint32_t>();
    const auto size = reader.integer<std::uint64_t>();
    const auto data = reader.next(size);
    if (rank >= static_cast<std::uint32_t>(nranks)) reader.reject();
    blocks.push_back({static_cast<int>(rank), data});
  }
  if (!reader.complete()) return std::nullopt;
  return blocks;
}

void exchange_barrier(Tree& tree, Deadline deadline, Operation operation, const Interrupt& interrupt) {
  const auto turn = tree.take_turn();
  const OperationStep step = tree.next_step(operation);
  tree.check();
  const int parent = tree.shape().parent(tree.rank());
  for (const int child : tree.shape().children(tree.rank())) tree.receive(child, step, deadline, interrupt);
  if (parent >= 0) tree.send(parent, step, nullptr);
  if (parent >= 0) tree.receive(parent, step, deadline, interrupt);
  flood(tree, step, nullptr, parent);
}

void exchange_broadcast(Tree& tree, std::span<std::byte> data, int root, Deadline deadline,
                        const Interrupt& interrupt) {
  if (root < 0 || root >= tree.nranks()) fail(ncclInvalidArgument, "broadcast from rank {} of {}", root, tree.nranks());
  if (data.size() > kLargestFrame)
    fail(ncclInvalidArgument, "broadcast of {} bytes, at most {}", data.size(), kLargestFrame);
  const auto turn = tree.take_turn();
  const OperationStep step = tree.next_step(Operation::kBroadcast);
  if (root == tree.rank()) {
    tree.check();
    return flood(tree, step, share(Buffer(data.begin(), data.end())), -1);
  }
  const int source = tree.shape().next_hop(tree.rank(), root);
  const SharedBytes payload = share(tree.receive(source, step, deadline, interrupt));
  flood(tree, step, payload, source);
  expect_size(tree, step, payload->size(), data.size());
  if (!data.empty()) std::memcpy(data.data(), payload->data(), data.size());
}

void enter_together(Tree& tree, const Interrupt& interrupt) {
  const Deadline deadline = std::chrono::steady_clock::now() + tree.operation_timeout() + kGrace;
  exchange_barrier(tree, deadline, Operation::kBarrier, interrupt);
  Contact number;
  fill_random(number);
  exchange_broadcast(tree, std::as_writable_bytes(std::span(number)), 0, deadline, interrupt);
  tree.agree_on_secret(number);
}

void exchange_all_gather(Tree& tree, const void* mine, void* all, std::size_t bytes, const Purpose& purpose) {
  const std::size_t total = bytes * static_cast<std::size_t>(tree.nranks());
  if (bytes > kLargestFrame || (bytes + kBlockHeader) * static_cast<std::size_t>(tree.nranks()) > kLargestFrame) {
    fail(ncclInvalidArgument, "all_gather of {} bytes from each of {} ranks: at most {} together", bytes, tree.nranks(),
         kLargestFrame);
  }
  const auto turn = tree.take_turn();
  const Deadline deadline = tree.operation_deadline(purpose.operation);
  const OperationStep step = tree.next_step(purpose.operation, purpose.detail);
  tree.check();
  Buffer gathered = gather(tree, step, {static_cast<const std::byte*>(mine), bytes}, deadline);
  if (tree.rank() == 0) gathered = assemble(tree, step, gathered, bytes);
  const SharedBytes result = scatter_down(tree, step, std::move(gathered), deadline);
  expect_size(tree, step, result->size(), total);
  if (total > 0) std::memcpy(all, result->data(), total);
}

std::vector<Buffer> exchange_all_gather_variable(Tree& tree, std::span<const std::byte> mine) {
  if (mine.size() > kLargestFrame / static_cast<std::size_t>(tree.nranks()) - kBlockHeader) {
    fail(ncclInvalidArgument, "all_gather_variable of {} bytes on rank {} of {}: at most {} from all ranks",
         mine.size(), tree.rank(), tree.nranks(), kLargestFrame);
  }
  const auto turn = tree.take_turn();
  const Deadline deadline = tree.operation_deadline(Operation::kAllGatherVariable);
  const OperationStep step = tree.next_step(Operation::kAllGatherVariable);
  tree.check();
  Buffer gathered = gather(tree, step, mine, deadline);
  const SharedBytes result = scatter_down(tree, step, std::move(gathered), deadline);
  std::vector<Buffer> all(static_cast<std::size_t>(tree.nranks()));
  for (const RankBlock& block : checked_blocks(tree, step, *result)) {
    all[static_cast<std::size_t>(block.rank)].assign(block.data.begin(), block.data.end());
  }
  return all;
}

}  // namespace nitinol
