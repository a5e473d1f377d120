// What somebody who joins or fetches believes of those it has turned to: the server's half of the proof, a root's
// answer, the tree parent, and a process that gives descriptors away. All of them but the first know the secret.
// LIBRARIES: nitinol_bootstrap
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/connect.h"
#include "bootstrap/fd_exchange.h"
#include "bootstrap/fd_wire.h"
#include "bootstrap/frame.h"
#include "bootstrap/handshake.h"
#include "bootstrap/messages.h"
#include "bootstrap/root.h"
#include "bootstrap/tree.h"
#include "bootstrap/unique_id.h"
#include "frames.h"
#include "hearing.h"

namespace {

using namespace nitinol;
using namespace nitinol::fuzz;

void require(bool condition) {
  if (!condition) __builtin_trap();
}

BootstrapOptions impatient() {
  BootstrapOptions options;
  options.interfaces = "=lo";
  options.family = AF_INET;
  options.retry_count = 1;
  options.retry_sleep = std::chrono::milliseconds(1);
  options.init_timeout = options.operation_timeout = std::chrono::milliseconds(3000);
  return options;
}

/// Whoever is connected to waits for one connection, for as long as the one who connects is there.
UniqueFd accept_one(int listener, const std::function<bool()>& over) {
  while (!wait_for(listener, 5)) {
    if (over()) return {};
  }
  return UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
}

/// The server's half of the proof.
bool prove(int fd, const Secret& key) {
  HelloBytes hello{};
  ProofBytes proof{};
  ServerHandshake handshake;
  if (!hear(fd, hello) || !handshake.hello(hello)) return false;
  const AnswerBytes answer = handshake.answer(key);
  say(fd, std::as_bytes(std::span(answer)));
  return hear(fd, proof) && handshake.verify(proof);
}

/// The server's proof, by somebody who does not know the secret.
void fuzz_answer(std::span<const std::byte> input) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  const UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  say(ours.get(), input);
  ::shutdown(ours.get(), SHUT_WR);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  require(!prove_as_client(theirs.get(), random_secret(), deadline, {}).empty());
}

/// Listens where a rank is to connect to.
struct Listener {
  UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  SocketAddress address;

  Listener() {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(here);
    auto* const any = reinterpret_cast<sockaddr*>(&here);
    if (::bind(fd.get(), any, length) != 0 || ::listen(fd.get(), 4) != 0) std::abort();
    if (::getsockname(fd.get(), any, &length) != 0) std::abort();
    address = *SocketAddress::from_sockaddr(any);
  }
};

/// Until the rank has closed both, or says to the root that it is through, or that it gives up: then that one goes.
void hear_out(UniqueFd root, UniqueFd parent) {
  FrameReader reader;
  while (root || parent) {
    pollfd waiting[2] = {{root ? root.get() : -1, POLLIN, 0}, {parent ? parent.get() : -1, POLLIN, 0}};
    if (!wait_for_any(waiting, kPatience)) std::abort();
    std::byte buffer[4096];
    if (waiting[0].revents != 0) {
      const auto got = ::recv(root.get(), buffer, sizeof(buffer), 0);
      if (got > 0) reader.feed(std::span(buffer, static_cast<std::size_t>(got)));
      bool over = got <= 0;
      while (const auto frame = reader.take()) over = over || frame->type != FrameType::kRegister;
      if (over) root.reset();
    }
    if (waiting[1].revents != 0 && ::recv(parent.get(), buffer, sizeof(buffer), 0) <= 0) parent.reset();
  }
}

struct Conversation {
  UniqueId id;
  Contact contact{};
  Bytes from_root;
  std::optional<Bytes> from_parent;
};

/// The root of the id and the tree parent of the one rank that joins.
void converse(const Conversation& c, Listener& listener, const std::function<bool()>& over) {
  UniqueFd root = accept_one(listener.fd.get(), over);
  if (!root || !prove(root.get(), root_key(c.id.secret))) return listener.fd.reset();
  say(root.get(), c.from_root);
  UniqueFd parent;
  if (c.from_parent) {
    parent = accept_one(listener.fd.get(), over);
    if (parent && !prove(parent.get(), rank_key(derive_secret(c.id.secret, "ranks"), 0, c.contact))) parent.reset();
    if (parent) say(parent.get(), *c.from_parent);
    if (parent) ::shutdown(parent.get(), SHUT_WR);
  } else {
    ::shutdown(root.get(), SHUT_WR);
  }
  listener.fd.reset();
  hear_out(std::move(root), std::move(parent));
}

/// A rank that joins: alone, and hears a root; or as the second of two, and hears its parent.
void fuzz_join(std::span<const std::byte> input, bool has_parent) {
  Listener listener;
  Conversation c;
  c.id.secret = random_secret();
  c.id.root = listener.address;
  if (has_parent) {
    ParentReply reply;
    reply.rank = 0;
    reply.listener = listener.address;
    reply.identity = {"h", 1};
    Frame frame;
    frame.type = FrameType::kParent;
    frame.payload = encode(reply);
    c.from_root = encode_frame(frame);
    c.from_parent = frames_of(input);
  } else {
    c.from_root = frames_of(input);
  }
  std::atomic<bool> over{false};
  std::thread others([&] { converse(c, listener, [&] { return over.load(); }); });
  try {
    Bootstrap::join({{c.id}, has_parent ? 1 : 0, has_parent ? 2 : 1, impatient(), nullptr});
  } catch (const Error&) {
  }
  over = true;
  others.join();
}

/// Sends the bytes, with a descriptor if there is one.
void say_with(int fd, std::span<const std::byte> bytes, int descriptor) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  static_cast<void>(::sendmsg(fd, &message, MSG_NOSIGNAL));
}

/// A process that is asked for a descriptor.
void fuzz_fetched(std::span<const std::byte> input, int which) {
  static const Secret secret = random_secret();
  static FdExchange* const exchange = new FdExchange(secret);
  static int number = 0;
  FdServerName name;
  const std::string text = "nitinol-fuzz-" + std::to_string(getpid()) + "-" + std::to_string(++number);
  std::copy(text.begin(), text.end(), name.text.begin());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, text.data(), text.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener.get(), 1) != 0)
    std::abort();
  Bytes bytes = frames_of(input);
  if (which % 2 == 0) {
    Frame frame;
    frame.type = FrameType::kDescriptor;
    frame.payload.assign(input.begin(), input.end());
    if (which % 4 == 0) frame.payload.resize(kFdAnswerPayload);
    bytes = encode_frame(frame);
  }
  std::atomic<bool> over{false};
  std::thread other([&] {
    const UniqueFd fd = accept_one(listener.get(), [&] { return over.load(); });
    if (!fd || !prove(fd.get(), derive_secret(secret, "descriptors"))) return;
    which % 4 < 2 && !bytes.empty() ? say_with(fd.get(), bytes, STDERR_FILENO) : say(fd.get(), bytes);
  });
  try {
    const SharedFd got = exchange->fetch(name, FdKey(), std::chrono::steady_clock::now() + std::chrono::seconds(10));
    require(::fcntl(got.fd.get(), F_GETFD) >= 0);
  } catch (const Error&) {
  }
  over = true;
  other.join();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 4096) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(2);
  switch (data[0] % 4) {
    case 0: fuzz_answer(input); break;
    case 1: fuzz_join(input, false); break;
    case 2: fuzz_join(input, true); break;
    case 3: fuzz_fetched(input, data[1]); break;
  }
  return 0;
}
