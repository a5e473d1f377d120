#include "comm/handle_exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "bootstrap/messages.h"
#include "executor/call_words.h"

namespace nitinol {
namespace {

FdKey key_of(int rank, uint64_t name) {
  FdKey key;
  std::memcpy(key.bytes.data(), &rank, sizeof(rank));
  std::memcpy(key.bytes.data() + 8, &name, sizeof(name));
  return key;
}

std::function<SharedFd()> shared_by(std::function<MemoryHandle()> make) {
  return [make = std::move(make)] {
    MemoryHandle handle = make();
    return SharedFd{std::move(handle.fd), handle.bytes};
  };
}

}  // namespace

SocketHandleExchange::SocketHandleExchange(const Secret& secret, int rank, std::chrono::milliseconds longest,
                                           const std::atomic<bool>* abort_flag)
    : exchange_(secret), rank_(rank), longest_(longest), abort_flag_(abort_flag) {}

void SocketHandleExchange::offer(uint64_t name, std::function<MemoryHandle()> make) {
  exchange_.publish(key_of(rank_, name), shared_by(std::move(make)));
}

void SocketHandleExchange::offer_on_demand(uint64_t name, std::function<MemoryHandle()> make) {
  exchange_.publish_on_demand(key_of(rank_, name), shared_by(std::move(make)));
}

void SocketHandleExchange::withdraw(uint64_t name) { exchange_.withdraw(key_of(rank_, name)); }

/// Descriptors pass within a host only.
PeerIdentity SocketHandleExchange::process_of(const Peer& peer) {
  return {this_process().host, peer.pid, peer.pid_namespace};
}

MemoryHandle SocketHandleExchange::fetch(int peer, uint64_t name) {
  const Peer& other = peers_.at(static_cast<size_t>(peer));
  const PeerIdentity process = process_of(other);
  FdServerName server;
  std::copy_n(other.handle_server.begin(), server.text.size(), server.text.begin());
  const auto begin = std::chrono::steady_clock::now();
  const auto interrupt = [&] {
    if (abort_flag_->load()) fail(ncclRemoteError, "the communicator is being aborted");
    // Whoever is alive is on its way; whoever is dead breaks the connection.
    if (std::chrono::steady_clock::now() - begin > patience_with_stopped(patience_) && is_stopped(process)) {
      fail(ncclRemoteError, "it did not answer in time");
    }
  };
  try {
    SharedFd shared = exchange_.fetch(server, key_of(peer, name), begin + longest_, interrupt);
    return {std::move(shared.fd), shared.metadata};
  } catch (const Error& error) {
    fail(error.code(), "cannot reach the memory of {}: {}{}", describe_rank(peer, other), error.what(),
         error.code() == ncclRemoteError ? fate_of(process) : "");
  }
}

/// Whoever refuses to answer may lack memory; whoever is gone is known to be, soon.
bool SocketHandleExchange::turns_out_gone(int peer) const {
  constexpr std::chrono::seconds kPatienceWithWords{1};
  constexpr std::chrono::milliseconds kBetweenLooks{10};
  const PeerIdentity process = process_of(this->peer(peer));
  const auto begin = std::chrono::steady_clock::now();
  while (!abort_flag_->load()) {
    if (has_ended(process) || (is_gone_ && is_gone_(peer))) return true;
    if (std::chrono::steady_clock::now() - begin >= kPatienceWithWords) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return false;
}

}  // namespace nitinol
