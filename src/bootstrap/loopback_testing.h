// Ports of the loopback interface for a test alone, and connections to whoever listens.
#pragma once

#include <sys/socket.h>

#include <stdexcept>

#include "base/unique_fd.h"
#include "bootstrap/address.h"

namespace nitinol {

/// Binds the TCP socket to a free port, which others may be bound to as well, and returns it.
inline SocketAddress bind_to_loopback(int fd) {
  SocketAddress address;
  address.family = AF_INET;
  address.host = {127, 0, 0, 1};
  sockaddr_storage storage;
  socklen_t length = address.to_sockaddr(storage);
  auto* const here = reinterpret_cast<sockaddr*>(&storage);
  const int one = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
  if (::bind(fd, here, length) != 0) throw std::runtime_error("bind");
  if (::getsockname(fd, here, &length) != 0) throw std::runtime_error("getsockname");
  return *SocketAddress::from_sockaddr(here);
}

/// A TCP connection to that address; throws if nobody listens there.
inline UniqueFd connect_to(const SocketAddress& address) {
  UniqueFd fd(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage storage;
  const socklen_t length = address.to_sockaddr(storage);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) throw std::runtime_error("connect");
  return fd;
}

}  // namespace nitinol
