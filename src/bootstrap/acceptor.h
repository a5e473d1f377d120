// Lets peers in: listens, runs the mutual proof with many connections at a time, and hands each proven one to the
// service whose key it knows. Strangers, port scanners, silent and slow connections are dropped after a few seconds, or
// earlier when there are many, and change nothing else.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "bootstrap/address.h"
#include "bootstrap/fork_guard.h"
#include "bootstrap/handshake.h"
#include "bootstrap/reactor.h"

namespace nitinol {

/// Something that peers may connect to when they know its key. `accepted` runs on the network thread.
struct Service {
  Secret key;
  std::function<void(UniqueFd)> accepted;
  std::weak_ptr<Reactor::Leaver> served{};  ///< who ends if this process has no memory to connect to it; or nobody
};

/// The services of this process by the names of their keys. Thread safe.
class ServiceTable {
 public:
  /// The service is found until the returned handle is gone; null if there is one with this key already.
  std::shared_ptr<void> add(Service service);
  std::shared_ptr<const Service> find(const KeyId& id) const;

 private:
  struct Entry;

  void remove(const KeyId& id);

  mutable std::mutex mutex_;
  std::map<KeyId, std::shared_ptr<const Service>> services_;
};

/// One listening socket, TCP or Unix.
class Acceptor : public Reactor::Leaver, public std::enable_shared_from_this<Acceptor> {
 public:
  /// Starts to accept; `stop` ends it. Both from any thread.
  static std::shared_ptr<Acceptor> start(UniqueFd listening, Reactor& reactor, const ServiceTable& services);
  /// Why nobody is let in; 0: all is well. From any thread.
  int error() const { return error_; }
  /// The same, as long as somebody waits for whom there has been no descriptor or memory for half a second; if that has
  /// been found since then.
  int lack(Reactor::Clock::time_point since) const { return lack_found_.load() > since ? lack_.load() : 0; }
  void stop() noexcept {
    stops_ = true;
    reactor_.ask_to_leave(shared_from_this());
  }

  Acceptor(GuardedFd listening, Reactor& reactor, const ServiceTable& services);

 private:
  enum class Stage { kHello, kProof };
  struct Pending {
    GuardedFd fd;
    Reactor::Token token = 0;
    Reactor::Clock::time_point deadline;
    Stage stage = Stage::kHello;
    std::array<std::uint8_t, sizeof(HelloBytes)> buffer{};
    std::size_t filled = 0;
    ServerHandshake handshake;
    std::shared_ptr<const Service> service;
  };
  using PendingPosition = std::list<Pending>::iterator;

  void leave() override;
  void begin() noexcept;
  void on_listening(std::uint32_t events);
  bool accept_one();  // false: nobody is left, or is to be let in now
  void on_lack(int error);
  void admit(UniqueFd fd);
  void on_pending(PendingPosition position);
  bool advance(Pending& pending);  // false: drop it
  bool on_hello(Pending& pending);
  void drop(PendingPosition position);
  PendingPosition oldest_silent();
  void drop_one();
  void sweep();
  void sweep_later();
  void pause();

  Reactor& reactor_;
  const ServiceTable& services_;
  GuardedFd listening_;
  Reactor::Token token_ = 0;
  std::atomic<bool> stops_{false};
  std::atomic<int> error_{0};
  std::atomic<int> lack_{0};
  std::atomic<Reactor::Clock::time_point> lack_found_{};  ///< the last time
  std::optional<Reactor::Clock::time_point> lacks_since_;
  std::list<Pending> pending_;  // oldest first
  bool sweeping_ = false;
};

}  // namespace nitinol
