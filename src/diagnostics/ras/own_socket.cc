#include "diagnostics/ras/own_socket.h"

#include <utility>

namespace nitinol::ras {

OwnSocket::OwnSocket(UniqueFd fd) : fd_(std::move(fd)), identity_(identity_of(fd_.get())) {}

OwnSocket& OwnSocket::operator=(OwnSocket&& other) noexcept {
  if (this == &other) return *this;
  reset();
  fd_ = std::move(other.fd_);
  identity_ = other.identity_;
  return *this;
}

bool OwnSocket::is_there() const { return fd_ && identity_of(fd_.get()) == identity_; }

void OwnSocket::reset() {
  const bool closes = is_there();
  UniqueFd fd = fd_.release();
  if (!closes) static_cast<void>(fd.release());
}

}  // namespace nitinol::ras
