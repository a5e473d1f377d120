// Arithmetic of the bootstrap tree.
#include "bootstrap/tree_shape.h"

#include <algorithm>

namespace nitinol {
namespace {

constexpr int kFanOut = 4;

}  // namespace

// The first nranks % blocks blocks have one rank more than the others.
int TreeShape::block_begin(int block) const {
  const int size = nranks_ / blocks_;
  return block * size + std::min(block, nranks_ % blocks_);
}

int TreeShape::block_of(int rank) const {
  const int size = nranks_ / blocks_;
  const int larger = nranks_ % blocks_;
  const int in_larger = larger * (size + 1);
  return rank < in_larger ? rank / (size + 1) : larger + (rank - in_larger) / size;
}

int TreeShape::parent_block(int block) const { return block == 0 ? -1 : (block - 1) / kFanOut; }

int TreeShape::child_blocks(int block) const { return std::clamp(blocks_ - (block * kFanOut + 1), 0, kFanOut); }

int TreeShape::parent(int rank) const {
  const int block = block_of(rank);
  const int begin = block_begin(block);
  const int place = rank - begin;
  if (place > 0) return begin + (place - 1) / kFanOut;
  return block == 0 ? -1 : block_begin(parent_block(block));
}

std::vector<int> TreeShape::children(int rank) const {
  const int block = block_of(rank);
  const int begin = block_begin(block);
  const int place = rank - begin;
  std::vector<int> result;
  for (int i = 1; i <= kFanOut; ++i) {
    const long long child = begin + static_cast<long long>(place) * kFanOut + i;
    if (child < block_end(block)) result.push_back(static_cast<int>(child));
  }
  if (place > 0) return result;
  for (int i = 1; i <= child_blocks(block); ++i) result.push_back(block_begin(block * kFanOut + i));
  return result;
}

int TreeShape::next_hop(int from, int to) const {
  int below = -1;
  for (int rank = to; rank != -1; rank = parent(rank)) {
    if (rank == from) return below;
    below = rank;
  }
  return parent(from);
}

}  // namespace nitinol
