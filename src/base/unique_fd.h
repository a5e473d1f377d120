// A file descriptor that is closed when its owner goes away. It is none of the standard streams: in a program that has
// closed those the system gives their numbers to whatever is opened next, and what the program or another library
// writes to them would go there.
#pragma once

#include <unistd.h>

#include <utility>

namespace nitinol {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd < 0 || fd > STDERR_FILENO ? fd : beyond_standard_streams(fd)) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  /// Gives the descriptor up without closing it.
  int release() { return std::exchange(fd_, -1); }
  /// Closes what it holds and takes over `fd`.
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  /// The same under another number; errno is kept.
  static int beyond_standard_streams(int fd);

  int fd_ = -1;
};

}  // namespace nitinol
