// A new tree among some of the ranks of a communicator, which needs no root: the parent's all-gather brings the
// addresses.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "bootstrap/tree.h"

namespace nitinol {

/// See Bootstrap::make_child; all members have come when it returns. Null for a rank that is in no group.
std::shared_ptr<Tree> make_child_tree(Tree& parent, const std::vector<int>& members, int my_index,
                                      const std::atomic<bool>* abort_flag);

}  // namespace nitinol
