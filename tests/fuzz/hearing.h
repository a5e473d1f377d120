// How fuzz targets listen to the library over a socket: a hang is a crash.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <span>

namespace nitinol::fuzz {

inline constexpr int kPatience = 20'000;  ///< milliseconds after which something hangs

/// False if nothing came. A slice of time that is over counts no longer than it should have been, as the whole machine
/// may have stood still; one that libFuzzer's alarm has cut off does not count.
inline bool wait_for_any(std::span<pollfd> waiting, int milliseconds) {
  constexpr int kSlice = 100;
  while (milliseconds > 0) {
    const int slice = std::min(milliseconds, kSlice);
    const int count = poll(waiting.data(), waiting.size(), slice);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return false;
    if (count == 0) milliseconds -= slice;
  }
  return false;
}

inline bool wait_for(int fd, int milliseconds) {
  pollfd waiting{fd, POLLIN, 0};
  return wait_for_any({&waiting, 1}, milliseconds);
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
