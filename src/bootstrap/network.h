// What the bootstrap has once per process: the network thread, the table of services, the listening sockets. A forked
// child gets new ones of its own.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "bootstrap/acceptor.h"
#include "bootstrap/address.h"
#include "bootstrap/reactor.h"

namespace nitinol {

/// A listening TCP socket, shared by all communicators of the process that use the same interface.
class Listener {
 public:
  Listener(SocketAddress address, std::shared_ptr<Acceptor> acceptor)
      : address_(address), acceptor_(std::move(acceptor)) {}
  ~Listener() { acceptor_->stop(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  const SocketAddress& address() const { return address_; }
  /// Throws Error if nobody can be let in; what is lacking counts if it has been since then.
  void check(Reactor::Clock::time_point since) const;

 private:
  SocketAddress address_;
  std::shared_ptr<Acceptor> acceptor_;
};

class Network {
 public:
  /// Made and started on first use.
  static Network& instance();

  Reactor& reactor() { return reactor_; }
  ServiceTable& services() { return services_; }

  /// Listens at `address`; port 0: any. Throws Error. The socket is closed with the last handle.
  std::shared_ptr<Listener> listen(const SocketAddress& address);

  /// Keeps what answers for ids that are used up, the last few of them.
  void bury(std::shared_ptr<void> service);

 private:
  Network() = default;

  Reactor reactor_;
  ServiceTable services_;
  std::once_flag started_;
  std::shared_ptr<Listener> find_listener(const SocketAddress& address) const;

  std::mutex listeners_mutex_;  // held while somebody waits for a port: not for the network thread, which may free it
  std::map<SocketAddress, std::weak_ptr<Listener>> listeners_;
  std::mutex buried_mutex_;
  std::deque<std::shared_ptr<void>> buried_;
};

}  // namespace nitinol
