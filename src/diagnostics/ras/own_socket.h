// A socket in a program that may close descriptors which are not its own, and give their numbers to files of its own.
#pragma once

#include "base/file_identity.h"
#include "bootstrap/fork_guard.h"

namespace nitinol::ras {

class OwnSocket {
 public:
  OwnSocket() = default;
  explicit OwnSocket(UniqueFd fd);
  OwnSocket(OwnSocket&&) noexcept = default;
  OwnSocket& operator=(OwnSocket&& other) noexcept;
  ~OwnSocket() { reset(); }

  int get() const { return fd_.get(); }
  explicit operator bool() const { return static_cast<bool>(fd_); }
  /// False: there is none, or the program has closed it, and its number is not to be touched.
  bool is_there() const;
  /// Closes it if it is there.
  void reset();
  UniqueFd release() { return fd_.release(); }

 private:
  GuardedFd fd_;
  FileIdentity identity_;  ///< no other file has it as long as the socket is there
};

}  // namespace nitinol::ras
