// The common half of the two-shot algorithms: each round of the data is cut into one block per rank, and every rank
// pushes to each other rank that rank's block: all ranks at the same distance, so that no two push to the same rank at
// once, and in each channel beginning at another distance. Where all data comes from or goes to a root and there are
// many rounds, the blocks are those of the others alone: a block of the root's own would pass its link twice. P may
// have its own way to send, or receive, all blocks of a round at once.
#pragma once

#include "algorithm/row.h"

namespace nitinol::algorithm {

/// Sends every other rank its block, of which block_of_rank says where it is, if it has one.
template <class P, class BlockOfRank>
NITINOL_HOST_DEVICE void scatter_each(P& p, int turn, const BlockOfRank& block_of_rank) {
  for (int i = 1; i < p.ranks(); ++i) {
    const int peer = rank_after(p.rank(), distance_at(i, turn, p.ranks()), p.ranks());
    const Run block = block_of_rank(peer);
    if (block.count > 0) p.send(peer, input(block.offset, block.count));
  }
}
/// Receives every other rank's block into the output, nearest predecessor first.
template <class P, class BlockOfRank>
NITINOL_HOST_DEVICE void gather_each(P& p, const BlockOfRank& block_of_rank) {
  for (int distance = 1; distance < p.ranks(); ++distance) {
    const int peer = rank_before(p.rank(), distance, p.ranks());
    const Run block = block_of_rank(peer);
    if (block.count > 0) p.recv(peer, output(block.offset, block.count));
  }
}

/// Of a round that is cut into one block for each rank.
template <class P>
NITINOL_HOST_DEVICE void scatter_blocks(P& p, const Round& round, int turn) {
  if constexpr (requires { p.send_input_blocks(round); }) {
    p.send_input_blocks(round);
  } else {
    scatter_each(p, turn, [round](int rank) { return block_of(round, rank); });
  }
}
template <class P>
NITINOL_HOST_DEVICE void gather_blocks(P& p, const Round& round) {
  if constexpr (requires { p.recv_output_blocks(round); }) {
    p.recv_output_blocks(round);
  } else {
    gather_each(p, [round](int rank) { return block_of(round, rank); });
  }
}

/// The block of `rank`, which is not the root, in a round that is cut into one block for each rank but the root.
template <class P>
NITINOL_HOST_DEVICE Run block_beside_root(const P& p, const Round& round, int rank) {
  return block_of(round, rank_before(rank, p.root(), p.ranks()) - 1);
}

/// gather_blocks() of such a round.
template <class P>
NITINOL_HOST_DEVICE void gather_blocks_beside_root(P& p, const Round& round) {
  for (int distance = 1; distance < p.ranks(); ++distance) {
    const int peer = rank_before(p.rank(), distance, p.ranks());
    if (peer == p.root()) continue;
    const Run block = block_beside_root(p, round, peer);
    if (block.count > 0) p.recv(peer, output(block.offset, block.count));
  }
}

}  // namespace nitinol::algorithm
