// The process-wide singleton of the bootstrap, and its listening sockets.
#include "bootstrap/network.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "base/error.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;

constexpr int kBacklog = 16384;  // the system cuts it to what it allows
constexpr std::size_t kMostBuried = 1024;
constexpr auto kBindPatience = 3s;
constexpr const char* kClosedByProgram =
    "the program has closed descriptors of the library, so that no communicator can be made in this process any more; "
    "it may close only what it has opened. Closed were ";

std::atomic<Network*> current{nullptr};
// The parent's object in a forked child: its locks may be held by threads that are not there, so it is left alone.
std::atomic<Network*> inherited{nullptr};

void forget_in_child() { inherited.store(current.exchange(nullptr)); }

// Many ranks in one process need many sockets; the hard limit is what the administrator allows.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

UniqueFd bind_socket(const SocketAddress& address) {
  UniqueFd fd(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail_errno(errno, formatted("creating a socket to listen at {}", address.to_string()));
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  sockaddr_storage storage;
  const socklen_t length = address.to_sockaddr(storage);
  const auto deadline = std::chrono::steady_clock::now() + kBindPatience;
  while (::bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    // A given port may still be held by a communicator of the same address that is just closing it.
    if (error == EADDRINUSE && address.port != 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(10ms);
      continue;
    }
    fail_errno(
        error,
        formatted("listening at {}{}", address.to_string(),
                  address.port == 0 ? "" : " (NCCL_COMM_ID must be an address of rank 0's host, its port free)"));
  }
  return fd;
}

SocketAddress bound_address(int fd, const SocketAddress& wanted) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) fail_errno(errno, "getsockname");
  const auto address = SocketAddress::from_sockaddr(reinterpret_cast<sockaddr*>(&storage));
  return address ? *address : wanted;
}

}  // namespace

Network& Network::instance() {
  Network* network = current.load(std::memory_order_acquire);
  if (network == nullptr) {
    on_fork_in_child(forget_in_child);
    auto* fresh = new Network();
    if (current.compare_exchange_strong(network, fresh)) {
      network = fresh;
    } else {
      delete fresh;
    }
  }
  std::call_once(network->started_, [network] {
    raise_descriptor_limit();
    network->reactor_.start();
  });
  return *network;
}

void Listener::check(Reactor::Clock::time_point since) const {
  const int error = acceptor_->error();
  if (error == EBADF) fail(ncclSystemError, "{}the socket it listens at, {}", kClosedByProgram, address_.to_string());
  if (error != 0)
    fail_errno(error, formatted("the network thread cannot watch the socket at {}", address_.to_string()));
  const int lack = acceptor_->lack(since);
  if (lack != 0) fail_errno(lack, formatted("letting in who connects to {}", address_.to_string()));
}

std::shared_ptr<Listener> Network::find_listener(const SocketAddress& address) const {
  for (const auto& [wanted, other] : listeners_) {
    auto listener = other.lock();
    if (listener && (wanted == address || listener->address() == address)) return listener;
  }
  return nullptr;
}

std::shared_ptr<Listener> Network::listen(const SocketAddress& address) {
  if (!reactor_.is_whole()) fail(ncclSystemError, "{}those that its network thread waits with", kClosedByProgram);
  const std::lock_guard lock(listeners_mutex_);
  if (auto listener = find_listener(address)) {
    listener->check(Reactor::Clock::now());
    return listener;
  }
  UniqueFd fd = bind_socket(address);
  const SocketAddress bound = bound_address(fd.get(), address);
  const auto acceptor = Acceptor::start(std::move(fd), reactor_, services_);
  std::shared_ptr<Listener> listener;
  try {
    listener = std::make_shared<Listener>(bound, acceptor);
    listeners_[address] = listener;
  } catch (const std::exception&) {
    acceptor->stop();
    throw;
  }
  return listener;
}

void Network::bury(std::shared_ptr<void> service) {
  std::shared_ptr<void> oldest;  // destroyed without the lock
  const std::lock_guard lock(buried_mutex_);
  buried_.push_back(std::move(service));
  if (buried_.size() <= kMostBuried) return;
  oldest = std::move(buried_.front());
  buried_.pop_front();
}

}  // namespace nitinol
