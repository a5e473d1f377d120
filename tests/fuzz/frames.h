// What a fuzz target's input says to somebody: frames of any kind, over a socket.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bootstrap/frame.h"

namespace nitinol::fuzz {

using Bytes = std::vector<std::byte>;

inline void say(int fd, std::span<const std::byte> bytes) {
  static_cast<void>(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

/// The input as frames: type, operation, sequence, length, payload.
inline Bytes frames_of(std::span<const std::byte> input) {
  Bytes stream;
  while (input.size() >= 4) {
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(input[i]); };
    Frame frame;
    frame.type = static_cast<FrameType>(byte(0) % (kLastFrameType + 2));
    frame.operation = static_cast<Operation>(byte(1) % (kLastOperation + 2));
    frame.sequence = byte(2);
    const std::size_t length = std::min<std::size_t>(byte(3), input.size() - 4);
    const auto payload = input.subspan(4, length);
    frame.payload.assign(payload.begin(), payload.end());
    const Bytes bytes = encode_frame(frame);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    input = input.subspan(4 + length);
  }
  return stream;
}

}  // namespace nitinol::fuzz
