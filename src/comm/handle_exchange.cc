#include "comm/handle_exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "bootstrap/messages.h"

namespace nitinol {
namespace {

constexpr std::chrono::seconds kFetchDeadline{60};

FdKey key_of(int rank, uint64_t name) {
  FdKey key;
  std::memcpy(key.bytes.data(), &rank, sizeof(rank));
  std::memcpy(key.bytes.data() + 8, &name, sizeof(name));
  return key;
}

}  // namespace

SocketHandleExchange::SocketHandleExchange(const Secret& secret, int rank, const std::atomic<bool>* abort_flag)
    : exchange_(secret), rank_(rank), abort_flag_(abort_flag) {}

void SocketHandleExchange::offer(uint64_t name, std::function<MemoryHandle()> make) {
  exchange_.publish(key_of(rank_, name), [make = std::move(make)] {
    MemoryHandle handle = make();
    return SharedFd{std::move(handle.fd), handle.bytes};
  });
}

void SocketHandleExchange::withdraw(uint64_t name) { exchange_.withdraw(key_of(rank_, name)); }

MemoryHandle SocketHandleExchange::fetch(int peer, uint64_t name) {
  FdServerName server;
  const auto& text = peers_.at(static_cast<size_t>(peer)).handle_server;
  std::copy_n(text.begin(), server.text.size(), server.text.begin());
  const std::chrono::milliseconds patience = patience_;
  const auto deadline =
      std::chrono::steady_clock::now() + (patience.count() > 0 ? patience : std::chrono::milliseconds(kFetchDeadline));
  try {
    SharedFd shared = exchange_.fetch(server, key_of(peer, name), deadline, abort_flag_);
    return {std::move(shared.fd), shared.metadata};
  } catch (const Error& error) {
    const Peer& other = peers_.at(static_cast<size_t>(peer));
    const PeerIdentity process{this_process().host, other.pid};  // descriptors pass within a host only
    fail(error.code(), "cannot reach the memory of rank {} (host {}, pid {}): {}{}", peer, other.host_name.data(),
         other.pid, error.what(), error.code() == ncclRemoteError ? fate_of(process) : "");
  }
}

}  // namespace nitinol
