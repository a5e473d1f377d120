// Whole conversations with the services of a process, by somebody who knows the secret: the rendezvous, a rank's tree
// connection with the operations over it, the exchange of descriptors, and the proof itself.
// LIBRARIES: nitinol_bootstrap
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "bootstrap/child.h"
#include "bootstrap/exchange.h"
#include "bootstrap/fd_exchange.h"
#include "bootstrap/frame.h"
#include "bootstrap/messages.h"
#include "bootstrap/network.h"
#include "bootstrap/root.h"
#include "bootstrap/tree.h"
#include "frames.h"
#include "hearing.h"

namespace {

using namespace nitinol;
using namespace nitinol::fuzz;

BootstrapOptions loopback() {
  BootstrapOptions options;
  options.interfaces = "lo";
  options.init_timeout = options.operation_timeout = std::chrono::milliseconds(3000);
  return options;
}

Secret some_secret() {
  static const Secret secret = random_secret();
  return secret;
}

/// Our end of a connection whose other end the service got as a proven one.
UniqueFd connect_to(const Secret& key) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
  auto service = Network::instance().services().find(key_id(key));
  auto theirs = std::make_shared<UniqueFd>(ends[0]);
  Network::instance().reactor().post([service, theirs] {
    if (service) service->accepted(std::move(*theirs));
  });
  return UniqueFd(ends[1]);
}

/// Reads what comes until the other side closes.
void hear_out(int fd) {
  ::shutdown(fd, SHUT_WR);
  char buffer[4096];
  while (true) {
    if (!wait_for(fd, kPatience)) std::abort();
    if (::recv(fd, buffer, sizeof(buffer), 0) <= 0) return;
  }
}

void fuzz_root(std::span<const std::byte> input) {
  const Secret secret = random_secret();
  SocketAddress address = *SocketAddress::from_sockaddr([] {
    static sockaddr_storage storage{};
    storage.ss_family = AF_INET;
    return reinterpret_cast<const sockaddr*>(&storage);
  }());
  start_root(secret, address, {.life = RootLife::kReusable});
  const UniqueFd first = connect_to(root_key(secret));
  const UniqueFd second = connect_to(root_key(secret));
  const std::size_t half = input.size() / 2;
  say(first.get(), frames_of(input.first(half)));
  say(second.get(), frames_of(input.subspan(half)));
  hear_out(first.get());
  hear_out(second.get());
  // A rank that comes and goes ends a root that is still there.
  const UniqueFd last = connect_to(root_key(secret));
  Frame frame;
  frame.type = FrameType::kRegister;
  Registration registration;
  registration.nranks = 2;
  registration.timeout_ms = 1000;
  registration.listener = address;
  frame.payload = encode(registration);
  say(last.get(), encode_frame(frame));
  hear_out(last.get());
}

void run_operation(Tree& tree, int which, bool is_leaf) {
  const Deadline deadline = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  std::array<char, 16> small{};
  std::array<char, 16 * 3> all{};
  switch (which % 5) {
    case 0: exchange_barrier(tree, deadline); break;
    case 1: exchange_broadcast(tree, std::as_writable_bytes(std::span(small)), 1, deadline); break;
    case 2: exchange_all_gather(tree, small.data(), all.data(), small.size(), {.operation = Operation::kSplit}); break;
    case 3: static_cast<void>(exchange_all_gather_variable(tree, std::as_bytes(std::span(small)))); break;
    case 4: static_cast<void>(make_child_tree(tree, {0, 1}, is_leaf ? 1 : 0, nullptr)); break;
  }
}

/// Rank 0 of three, whose children we are.
void fuzz_tree(std::span<const std::byte> input, int which) {
  static const Secret secret = some_secret();
  TreeArguments arguments;
  arguments.shape = TreeShape(3, 1);
  arguments.secret = secret;
  arguments.options = loopback();
  const auto tree = Tree::start(arguments);
  const Secret key = rank_key(secret, 0, tree->contact());
  const UniqueFd children[2] = {connect_to(key), connect_to(key)};
  for (int i = 0; i < 2; ++i) {
    Frame hello;
    hello.type = FrameType::kHello;
    hello.payload = encode(Hello{i + 1, {"h", 1}});
    if (which < 128) say(children[i].get(), encode_frame(hello));
    say(children[i].get(), frames_of(i == 0 ? input.first(input.size() / 2) : input.subspan(input.size() / 2)));
    ::shutdown(children[i].get(), SHUT_WR);
  }
  try {
    tree->wait_for_children(std::chrono::steady_clock::now() + std::chrono::milliseconds(which < 128 ? 2000 : 0), {});
    run_operation(*tree, which, false);
    run_operation(*tree, which / 5, false);
  } catch (const Error&) {
  }
  tree->shutdown();
}

/// Asks for descriptors.
void fuzz_fetch(std::span<const std::byte> input) {
  const Secret secret = random_secret();
  FdExchange exchange(secret);
  FdKey key;
  exchange.publish(key, UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)), 7);
  const UniqueFd us = connect_to(derive_secret(secret, "descriptors"));
  Frame fetch;
  fetch.type = FrameType::kFetch;
  fetch.payload.resize(input.empty() ? 0 : static_cast<std::uint8_t>(input[0]) % 20);
  if (input.size() % 2 == 0) say(us.get(), encode_frame(fetch));
  say(us.get(), frames_of(input));
  hear_out(us.get());
}

/// The listener before anything is proven.
void fuzz_listener(std::span<const std::byte> input) {
  static FdExchange* const exchange = new FdExchange(some_secret());
  const FdServerName name = exchange->server_name();
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = strnlen(name.text.data(), name.text.size());
  std::memcpy(address.sun_path + 1, name.text.data(), length);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) std::abort();
  say(fd.get(), input);
  hear_out(fd.get());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 4096) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(2);
  switch (data[0] % 4) {
    case 0: fuzz_root(input); break;
    case 1: fuzz_tree(input, data[1]); break;
    case 2: fuzz_fetch(input); break;
    case 3: fuzz_listener(input); break;
  }
  return 0;
}
