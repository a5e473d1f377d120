// HandleExchange over the bootstrap's Unix-socket service.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "bootstrap/fd_exchange.h"
#include "bootstrap/messages.h"
#include "model/peer.h"
#include "transport/transport.h"

namespace nitinol {

/// How long ranks wait for one whose process is stopped, if that is how long operations may wait (0: for ever).
inline std::chrono::milliseconds patience_with_stopped(std::chrono::milliseconds timeout) {
  return timeout.count() > 0 ? timeout : std::chrono::seconds(60);
}

class SocketHandleExchange : public HandleExchange {
 public:
  /// `longest`: how long a peer that is alive may take to answer. It may have to start up its GPU first.
  SocketHandleExchange(const Secret& secret, int rank, std::chrono::milliseconds longest,
                       const std::atomic<bool>* abort_flag);

  /// Name of this process's server, for Peer::handle_server.
  FdServerName server_name() const { return exchange_.server_name(); }
  /// What all ranks told about themselves; before the first fetch.
  void set_peers(std::vector<Peer> peers) { peers_ = std::move(peers); }
  /// How long to wait for a peer whose process is stopped; 0: the default. Any thread.
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }
  /// Who tells whether a peer is known to be gone, from any thread; before the first fetch.
  void ask_for_gone(std::function<bool(int)> is_gone) { is_gone_ = std::move(is_gone); }
  const Peer& peer(int rank) const { return peers_.at(static_cast<size_t>(rank)); }

  void offer(uint64_t name, std::function<MemoryHandle()> make) override;
  void offer_on_demand(uint64_t name, std::function<MemoryHandle()> make) override;
  void withdraw(uint64_t name) override;
  MemoryHandle fetch(int peer, uint64_t name) override;
  bool turns_out_gone(int peer) const override;

 private:
  static PeerIdentity process_of(const Peer& peer);

  FdExchange exchange_;
  int rank_;
  std::chrono::milliseconds longest_;
  const std::atomic<bool>* abort_flag_;
  std::atomic<std::chrono::milliseconds> patience_{};
  std::function<bool(int)> is_gone_;
  std::vector<Peer> peers_;
};

}  // namespace nitinol
