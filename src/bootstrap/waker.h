// Wakes whoever polls a descriptor.
#pragma once

#include "bootstrap/fork_guard.h"

namespace nitinol {

/// Its descriptor is readable from a call on. That is a timer which runs out, and no eventfd: a program that closes
/// descriptors which are not its own gives their numbers to files of its own, and what is written to wake somebody
/// would go there, or end the process by SIGPIPE. What is asked of a timer no other file does.
class Waker {
 public:
  /// Throws Error(ncclSystemError).
  Waker();
  int fd() const { return fd_.get(); }
  /// From any thread, and from a signal handler.
  void wake() const;
  /// Makes it unreadable again.
  void calm() const { calm(fd()); }
  static void calm(int fd);

 private:
  GuardedFd fd_;
};

}  // namespace nitinol
