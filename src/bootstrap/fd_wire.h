// What the two ends of an exchange of descriptors agree on.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>

#include "bootstrap/fd_exchange.h"
#include "bootstrap/frame.h"

namespace nitinol {

inline constexpr std::size_t kLongestFdReason = 200;
// Whether there is a descriptor, its metadata; else why not. Always as long, so that a descriptor beside it is not read
// with anything behind.
inline constexpr std::size_t kFdAnswerPayload = 1 + 8 + 2 + kLongestFdReason;
inline constexpr std::size_t kFdAnswerFrame = kFrameHeaderBytes + kFdAnswerPayload;

inline Secret fd_key(const Secret& secret) { return derive_secret(secret, "descriptors"); }

// In the abstract namespace: the name begins with a zero byte and nothing appears in the file system.
inline socklen_t abstract_address(const FdServerName& name, sockaddr_un& address) {
  const std::size_t length = strnlen(name.text.data(), name.text.size());
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.text.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

}  // namespace nitinol
