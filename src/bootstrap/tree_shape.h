// Who is whose neighbour in the tree of a communicator: pure arithmetic on rank numbers.
//
// The ranks are cut into blocks, one for each id. Within a block ranks form a heap: place i has the children 4i+1 ...
// 4i+4. The first rank of a block, its leader, is also a place in the heap of leaders.
#pragma once

#include <vector>

namespace nitinol {

class TreeShape {
 public:
  /// `blocks` from 1 to nranks.
  TreeShape(int nranks, int blocks) : nranks_(nranks), blocks_(blocks) {}

  int nranks() const { return nranks_; }
  int blocks() const { return blocks_; }

  int block_of(int rank) const;
  int block_begin(int block) const;
  int block_end(int block) const { return block_begin(block + 1); }

  /// -1 for rank 0.
  int parent(int rank) const;
  std::vector<int> children(int rank) const;
  /// The block whose leader is the parent of this block's leader; -1 for block 0.
  int parent_block(int block) const;
  int child_blocks(int block) const;

  /// The neighbour of `from` on the way to `to`; the two differ.
  int next_hop(int from, int to) const;

 private:
  int nranks_;
  int blocks_;
};

}  // namespace nitinol
