// How fuzz targets listen to the library over a socket: a hang is a crash.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>

namespace nitinol::fuzz {

inline constexpr int kPatience = 20'000;  ///< milliseconds after which something hangs

inline bool wait_for(int fd, int milliseconds) {
  pollfd waiting{fd, POLLIN, 0};
  return poll(&waiting, 1, milliseconds) == 1;
}

/// Fills the array; false if the connection ends before.
template <class Array>
bool hear(int fd, Array& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    if (!wait_for(fd, kPatience)) std::abort();
    const auto got = ::recv(fd, bytes.data() + at, bytes.size() - at, 0);
    if (got <= 0) return false;
    at += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace nitinol::fuzz
