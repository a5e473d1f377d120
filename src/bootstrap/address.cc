// Conversions of SocketAddress.
#include "bootstrap/address.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "bootstrap/wire.h"

namespace nitinol {

bool SocketAddress::is_loopback() const {
  if (family == AF_INET) return host[0] == 127;
  return std::all_of(host.begin(), host.end() - 1, [](std::uint8_t byte) { return byte == 0; }) && host[15] == 1;
}

bool SocketAddress::is_link_local() const { return family == AF_INET6 && host[0] == 0xfe && (host[1] & 0xc0) == 0x80; }

std::string SocketAddress::to_string() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (family == AF_UNSPEC || inet_ntop(family, host.data(), text, sizeof(text)) == nullptr) return "(no address)";
  return family == AF_INET6 ? formatted("[{}]:{}", text, port) : formatted("{}:{}", text, port);
}

socklen_t SocketAddress::to_sockaddr(sockaddr_storage& storage) const {
  std::memset(&storage, 0, sizeof(storage));
  if (family == AF_INET) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, host.data(), 4);
    std::memcpy(&storage, &v4, sizeof(v4));
    return sizeof(v4);
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  v6.sin6_scope_id = scope;
  std::memcpy(&v6.sin6_addr, host.data(), 16);
  std::memcpy(&storage, &v6, sizeof(v6));
  return sizeof(v6);
}

std::optional<SocketAddress> SocketAddress::from_sockaddr(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  SocketAddress result;
  if (address->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof(v4));
    result.family = AF_INET;
    result.port = ntohs(v4.sin_port);
    std::memcpy(result.host.data(), &v4.sin_addr, 4);
    return result;
  }
  if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, address, sizeof(v6));
    // One of IPv4, as a socket for both has it.
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      result.family = AF_INET;
      result.port = ntohs(v6.sin6_port);
      std::memcpy(result.host.data(), v6.sin6_addr.s6_addr + 12, 4);
      return result;
    }
    result.family = AF_INET6;
    result.port = ntohs(v6.sin6_port);
    result.scope = v6.sin6_scope_id;
    std::memcpy(result.host.data(), &v6.sin6_addr, 16);
    return result;
  }
  return std::nullopt;
}

void SocketAddress::encode(ByteWriter& writer) const {
  writer.integer(static_cast<std::uint8_t>(family == AF_INET ? 4 : 6));
  writer.block(host.data(), host.size());
  writer.integer(port);
}

SocketAddress SocketAddress::decode(ByteReader& reader) {
  SocketAddress result;
  const auto version = reader.integer<std::uint8_t>();
  if (version != 4 && version != 6) reader.reject();
  reader.block(result.host.data(), result.host.size());
  result.port = reader.integer<std::uint16_t>();
  if (!reader.ok()) return {};
  result.family = version == 4 ? AF_INET : AF_INET6;
  return result;
}

std::optional<HostAndPort> split_host_and_port(std::string_view text) {
  HostAndPort result;
  std::string_view port;
  if (text.starts_with('[')) {
    const auto close = text.find("]:");
    if (close == std::string_view::npos) return std::nullopt;
    result.host = text.substr(1, close - 1);
    result.bracketed = true;
    port = text.substr(close + 2);
  } else {
    const auto colon = text.find(':');
    if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos) return std::nullopt;
    result.host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), result.port);
  if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size()) return std::nullopt;
  if (result.host.empty() || result.port == 0) return std::nullopt;
  return result;
}

namespace {

/// Of the families that NCCL_SOCKET_FAMILY leaves, what an address that has none is told.
std::string_view only_family(int family) {
  if (family == AF_INET) return " (NCCL_SOCKET_FAMILY allows IPv4 alone)";
  if (family == AF_INET6) return " (NCCL_SOCKET_FAMILY allows IPv6 alone)";
  return "";
}

}  // namespace

SocketAddress resolve(const HostAndPort& where, int family) {
  addrinfo hints{};
  hints.ai_family = where.bracketed ? AF_INET6 : family;
  hints.ai_socktype = SOCK_STREAM;
  if (where.bracketed) hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  int code = getaddrinfo(where.host.c_str(), nullptr, &hints, &found);
  if (code != 0 && where.host == "localhost") {  // a container without /etc/hosts; no name means loopback
    code = getaddrinfo(nullptr, "0", &hints, &found);
  }
  if (code != 0) {
    fail(ncclInvalidArgument, "cannot resolve the address '{}': {}; write ipv4:port, [ipv6]:port or hostname:port{}",
         where.host, gai_strerror(code), only_family(family));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    auto address = SocketAddress::from_sockaddr(entry->ai_addr);
    if (!address) continue;
    address->port = where.port;
    return *address;
  }
  fail(ncclInvalidArgument, "'{}' has no IPv4 or IPv6 address", where.host);
}

}  // namespace nitinol
