// What a rank asks the roots of other ids than its own while it waits for others to join. The roots do not know each
// other, but each knows the list of ids of the ranks that came there; and that one is gone can be seen from anywhere.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/connect.h"
#include "bootstrap/messages.h"
#include "bootstrap/root_link.h"
#include "bootstrap/tree_shape.h"
#include "bootstrap/unique_id.h"

namespace nitinol {

/// How long a root that this rank cannot do without refuses connections before it counts as gone: `is_near` in this
/// network. Elsewhere others may stand in between, which let nobody pass yet.
std::chrono::milliseconds patience_with_root(bool is_near);
bool is_near(const UniqueId& id);
/// What has become of the process that made it, as fate_of() says.
std::string fate_of_maker(const UniqueId& id);

/// Throws that the root is gone; `detail` ends the sentence.
[[noreturn]] void fail_for_lost_root(const std::string& name, const std::string& detail = "");

class OtherRoots {
 public:
  struct Arguments {
    std::vector<UniqueId> ids;
    TreeShape shape;
    int rank = 0;
    /// One attempt; null if it fails.
    std::function<std::unique_ptr<RootLink>(int block, Deadline deadline, const Interrupt& interrupt, bool* refused)>
        reach;
    /// What this rank says of itself there.
    std::function<Registration(int block)> registration;
    /// The ranks of other blocks that are to connect to this one, and have not.
    std::function<std::vector<int>()> awaited;
  };

  explicit OtherRoots(Arguments arguments);

  /// Asks some of them, if the last time was not just now. Throws Error: what one of them says is wrong; and RootGone.
  void ask_now_and_then(const Interrupt& interrupt);

  /// This rank enters the first operation, which nobody leaves before all are in it. A root ends properly when its
  /// ranks have left that: until now one that is gone has ended before its time, from now on it may be through.
  void expect_ends() { may_end_ = true; }

 private:
  std::set<int> next();
  void ask(int block, const Interrupt& interrupt);
  void on_unreached(int block, bool refused);

  Arguments arguments_;
  int block_;
  bool may_end_ = false;
  Deadline next_time_;
  int asked_ = 0;  // how many roots have been
  std::set<int> reached_;
  std::map<int, Refusals> refusing_;
};

}  // namespace nitinol
