// An IPv4 or IPv6 address with a port: text form, wire form, and the sockaddr that the system wants.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace nitinol {

class ByteReader;
class ByteWriter;

struct SocketAddress {
  int family = AF_UNSPEC;               // AF_INET or AF_INET6
  std::array<std::uint8_t, 16> host{};  // network order; the first 4 bytes for IPv4
  std::uint16_t port = 0;
  std::uint32_t scope = 0;  // interface index of an IPv6 link-local address; means something on one host only

  friend auto operator<=>(const SocketAddress&, const SocketAddress&) = default;

  bool is_loopback() const;
  bool is_link_local() const;
  std::string to_string() const;  // 1.2.3.4:567 or [::1]:567

  /// Fills `storage`, returns the length that bind and connect want.
  socklen_t to_sockaddr(sockaddr_storage& storage) const;
  static std::optional<SocketAddress> from_sockaddr(const sockaddr* address);

  void encode(ByteWriter& writer) const;
  /// Fails the reader if the bytes are no address.
  static SocketAddress decode(ByteReader& reader);
};

struct HostAndPort {
  std::string host;
  std::uint16_t port = 0;
  bool bracketed = false;  // written as [host]:port
};

/// Splits `host:port` and `[ipv6]:port`; nothing if the text has another form.
std::optional<HostAndPort> split_host_and_port(std::string_view text);

/// Resolves numeric addresses and host names; throws Error(ncclInvalidArgument) if that fails.
SocketAddress resolve(const HostAndPort& where, int family);

}  // namespace nitinol
