#include "diagnostics/ras/own_socket.h"

#include <sys/stat.h>

#include <utility>

namespace nitinol::ras {

OwnSocket::OwnSocket(UniqueFd fd) : fd_(std::move(fd)) {
  struct stat found {};
  if (!fd_ || fstat(fd_.get(), &found) != 0) return;
  device_ = found.st_dev;
  inode_ = found.st_ino;
}

OwnSocket& OwnSocket::operator=(OwnSocket&& other) noexcept {
  if (this == &other) return *this;
  reset();
  fd_ = std::move(other.fd_);
  device_ = other.device_;
  inode_ = other.inode_;
  return *this;
}

bool OwnSocket::is_there() const {
  struct stat found {};
  return fd_ && fstat(fd_.get(), &found) == 0 && found.st_dev == device_ && found.st_ino == inode_;
}

void OwnSocket::reset() {
  const bool closes = is_there();
  UniqueFd fd = fd_.release();
  if (!closes) static_cast<void>(fd.release());
}

}  // namespace nitinol::ras
