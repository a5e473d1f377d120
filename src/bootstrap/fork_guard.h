// Descriptors of the bootstrap that a forked child must not keep open: with a copy in the child, a process that dies
// would not be missed by its peers. After a fork the child has /dev/null in their place, so that the numbers stay
// taken.
#pragma once

#include "base/unique_fd.h"

namespace nitinol {

/// A descriptor that the child of a fork does not share.
class GuardedFd {
 public:
  GuardedFd() = default;
  explicit GuardedFd(UniqueFd fd);
  GuardedFd(GuardedFd&&) noexcept = default;
  GuardedFd& operator=(GuardedFd&& other) noexcept;
  ~GuardedFd() { reset(); }

  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  void reset();
  /// Gives it up unguarded.
  UniqueFd release();

 private:
  UniqueFd fd_;
};

/// How many forks lie between this process and the one that called count_forks() first, which begins to count. What was
/// made at another count belongs to a process that this one was forked from.
int count_forks();
int forks_counted() noexcept;

/// `in_child` runs in the child of each fork, right after it; it may only do what a signal handler may. Call it once.
void on_fork_in_child(void (*in_child)());

}  // namespace nitinol
