// The operations over a tree: data go up to rank 0 and come down again. Each rank sends at most one message per
// neighbour.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/tree.h"

namespace nitinol {

void exchange_barrier(Tree& tree, Deadline deadline, Operation operation = Operation::kBarrier,
                      const Interrupt& interrupt = {});
void exchange_broadcast(Tree& tree, std::span<std::byte> data, int root, Deadline deadline,
                        const Interrupt& interrupt = {});
void exchange_all_gather(Tree& tree, const void* mine, void* all, std::size_t bytes, const Purpose& purpose);
std::vector<std::vector<std::byte>> exchange_all_gather_variable(Tree& tree, std::span<const std::byte> mine);

/// The first operations of a new tree: those of the communicator work when this returns, and nobody starts to use it
/// before all are in. `interrupt` is asked meanwhile for what is known elsewhere: the tree knows nothing of a rank that
/// has given up before it could say so to its neighbours.
void enter_together(Tree& tree, const Interrupt& interrupt);

/// What a rank's message to its parent is made of: the blocks of all ranks below it, each with its rank and length.
struct RankBlock {
  int rank = 0;
  std::span<const std::byte> data;
};
/// Cuts such a message; nothing if it is malformed or names a rank that is not below `nranks`.
std::optional<std::vector<RankBlock>> decode_blocks(std::span<const std::byte> bytes, int nranks);

}  // namespace nitinol
