// In tests: a program that has the port of a job's health monitoring at one of the two loopback addresses.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ras_testing.h"

namespace nitinol::testing {

inline sockaddr_in6 loopback_v6(int port) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  address.sin6_port = htons(static_cast<uint16_t>(port));
  return address;
}

/// A port at ::1 beside which a job may listen; -1 if there is no ::1.
inline int bind_beside_jobs(const Socket& socket) {
  sockaddr_in6 address = loopback_v6(0);
  socklen_t size = sizeof(address);
  const int one = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return -1;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin6_port);
}

/// Another program listens at 127.0.0.1; at the same port of ::1 there is room for a job, and for nobody else.
class OtherProgram {
 public:
  OtherProgram() {
    for (bool bound = false; !bound;) {
      room_ = Socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
      port_ = bind_beside_jobs(room_);
      if (port_ < 0) return;
      listener_ = Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = loopback(port_);
      bound = ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    }
    if (::listen(listener_.get(), 64) != 0) throw std::runtime_error("listen");
  }
  bool has_room() const { return port_ >= 0; }
  std::string port() const { return std::to_string(port_); }
  /// Until a job listens where there is room for it.
  void await_job() const {
    const sockaddr_in6 address = loopback_v6(port_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < deadline) {
      const Socket socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    throw std::runtime_error("no job listens");
  }
  /// Says something to all who come until that is so.
  void speak_until(const std::atomic<bool>& over) const {
    std::vector<Socket> clients;
    while (!over) {
      pollfd waiting{listener_.get(), POLLIN, 0};
      if (poll(&waiting, 1, 20) != 1) continue;
      clients.emplace_back(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      say(clients.back(), "HTTP/1.1 400 Bad Request\n");
    }
  }

 private:
  Socket room_;
  Socket listener_;
  int port_ = -1;
};

}  // namespace nitinol::testing
