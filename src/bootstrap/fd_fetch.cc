// Fetching descriptors that other processes have published.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "bootstrap/connect.h"
#include "bootstrap/connection.h"
#include "bootstrap/fd_wire.h"
#include "bootstrap/handshake.h"
#include "bootstrap/wire.h"

namespace nitinol {
namespace {

constexpr std::size_t kMostDescriptorsRead = 4;

UniqueFd connect_unix(const FdServerName& server, Deadline deadline, const Interrupt& interrupt) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail_errno(errno, "creating a Unix socket to fetch a descriptor");
  sockaddr_un address;
  const socklen_t length = abstract_address(server, address);
  while (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if ((errno == EAGAIN || errno == EINTR) && std::chrono::steady_clock::now() < deadline) {
      sleep_interruptibly(std::chrono::milliseconds(1), deadline, interrupt);  // its backlog is full
      continue;
    }
    fail(ncclRemoteError,
         "cannot reach the process that listens at the abstract Unix socket '{}': {}. It has exited, or it is in "
         "another network "
         "namespace (containers on one host must share it, for example with --network=host)",
         server.text.data(), std::strerror(errno));
  }
  return fd;
}

/// Takes the descriptors out of a received message; keeps the first, closes the others.
void take_descriptors(msghdr& message, UniqueFd& kept) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      UniqueFd owned(descriptor);
      if (!kept) kept = std::move(owned);
    }
  }
}

/// A connection that breaks is the peer's doing; all else goes wrong here.
[[noreturn]] void fail_exchange(int error, const std::string& what) {
  if (error == ECONNRESET || error == EPIPE) fail(ncclRemoteError, "{}: {}", what, std::strerror(error));
  fail_errno(error, what);
}

SharedFd receive_descriptor(int fd, Deadline deadline, const Interrupt& interrupt) {
  std::array<std::byte, kFdAnswerFrame> bytes{};
  std::size_t filled = 0;
  UniqueFd received;
  while (filled < bytes.size()) {
    wait_for_fd(fd, POLLIN, deadline, interrupt);
    iovec piece{bytes.data() + filled, bytes.size() - filled};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMostDescriptorsRead)> control{};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const auto got = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) fail_exchange(errno, "receiving a descriptor from another process");
    take_descriptors(message, received);
    if (got == 0)
      fail(ncclRemoteError, "the process asked for a descriptor closed the connection; has it left the communicator?");
    filled += static_cast<std::size_t>(got);
  }
  FrameReader reader;
  reader.feed(bytes);
  const auto frame = reader.take();
  if (!frame || frame->type != FrameType::kDescriptor)
    fail(ncclSystemError, "a process sent a malformed descriptor message");
  ByteReader payload(frame->payload);
  const bool found = payload.integer<std::uint8_t>() == 1;
  const auto metadata = payload.integer<std::uint64_t>();
  const std::string reason = payload.text(kLongestFdReason);
  if (!payload.ok()) fail(ncclSystemError, "a process sent a malformed descriptor message");
  if (!found && !reason.empty()) fail(ncclRemoteError, "the process cannot offer it: {}", reason);
  if (!found) fail(ncclRemoteError, "the process does not offer this descriptor (any more)");
  if (!received)
    fail(ncclSystemError, "a descriptor got lost on its way: this process may have too many open (ulimit -n)");
  return {std::move(received), metadata};
}

}  // namespace

SharedFd FdExchange::fetch(const FdServerName& server, const FdKey& key, std::chrono::steady_clock::time_point deadline,
                           const std::function<void()>& interrupt) const {
  const UniqueFd fd = connect_unix(server, deadline, interrupt);
  const std::string problem = prove_as_client(fd.get(), secret_, deadline, interrupt);
  if (!problem.empty()) {
    fail(ncclRemoteError, "cannot fetch a descriptor from the process at '{}': {}. Has it left the communicator?",
         server.text.data(), problem);
  }
  ByteWriter writer;
  writer.block(key.bytes.data(), key.bytes.size());
  const auto bytes = encode_frame(control_frame(FrameType::kFetch, writer.take()));
  if (::send(fd.get(), bytes.data(), bytes.size(), kNeverWait) != static_cast<ssize_t>(bytes.size())) {
    fail_exchange(errno, "asking another process for a descriptor");
  }
  return receive_descriptor(fd.get(), deadline, interrupt);
}

}  // namespace nitinol
