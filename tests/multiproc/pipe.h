// A pipe between a test's processes, which are forked after it was made.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>

namespace nitinol::testing {

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void put(const void* data, size_t bytes) const {
    if (write(ends[1], data, bytes) != static_cast<ssize_t>(bytes)) throw std::runtime_error("write failed");
  }
  bool get(void* data, size_t bytes) const {
    pollfd waiting{ends[0], POLLIN, 0};
    return poll(&waiting, 1, 60'000) == 1 && read(ends[0], data, bytes) == static_cast<ssize_t>(bytes);
  }
};

}  // namespace nitinol::testing
