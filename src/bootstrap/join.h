// Joining: from the unique ids to a tree in which every rank has its neighbours.
#pragma once

#include <memory>

namespace nitinol {

struct JoinArguments;
class Tree;

/// As Bootstrap::join().
std::shared_ptr<Tree> join_tree(const JoinArguments& arguments);

}  // namespace nitinol
