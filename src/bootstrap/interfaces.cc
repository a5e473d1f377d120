// Choice of the network interface.
#include "bootstrap/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/log.h"

namespace nitinol {
namespace {

int address_bytes(int family) { return family == AF_INET ? 4 : 16; }

int prefix_length(const sockaddr* netmask) {
  const auto mask = SocketAddress::from_sockaddr(netmask);
  if (!mask) return 0;
  int bits = 0;
  for (int i = 0; i < address_bytes(mask->family); ++i) bits += std::popcount(mask->host[static_cast<std::size_t>(i)]);
  return bits;
}

bool same_subnet(const NetworkInterface& interface, const SocketAddress& address) {
  if (interface.address.family != address.family) return false;
  if (interface.prefix_bits == 0) return false;
  if (address.is_link_local() && address.scope != 0 && interface.address.scope != address.scope) return false;
  for (int bit = 0; bit < interface.prefix_bits; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    const int mask = 0x80 >> (bit % 8);
    if (((interface.address.host[byte] ^ address.host[byte]) & mask) != 0) return false;
  }
  return true;
}

bool eligible(const NetworkInterface& interface, int family) {
  const SocketAddress& address = interface.address;
  if (family != AF_UNSPEC && address.family != family) return false;
  return address.family == AF_INET || (address.family == AF_INET6 && !address.is_loopback());
}

// Lower is better.
int automatic_class(const NetworkInterface& interface, const std::optional<SocketAddress>& near) {
  const std::string& name = interface.name;
  if (near && same_subnet(interface, *near)) return 0;
  if (name.starts_with("ib")) return 1;
  if (name.starts_with("docker")) return 3;
  if (name == "lo") return 4;
  if (name.starts_with("virbr")) return 5;
  return 2;
}

}  // namespace

std::vector<NetworkInterface> list_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) fail_errno(errno, "listing the network interfaces (getifaddrs)");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<NetworkInterface> result;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const auto address = SocketAddress::from_sockaddr(entry->ifa_addr);
    if (!address || (entry->ifa_flags & IFF_UP) == 0) continue;
    result.push_back({entry->ifa_name, *address, prefix_length(entry->ifa_netmask)});
  }
  return result;
}

bool matches_interface_list(const std::string& list, const std::string& name) {
  std::string_view rest = list;
  const bool exclude = rest.starts_with('^');
  if (exclude) rest.remove_prefix(1);
  const bool exact = rest.starts_with('=');
  if (exact) rest.remove_prefix(1);
  bool found = false;
  bool has_names = false;
  while (!rest.empty() && !found) {
    const auto comma = rest.find(',');
    std::string_view token = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    token = token.substr(0, token.find(':'));
    if (token.empty()) continue;
    has_names = true;
    found = exact ? name == token : std::string_view(name).starts_with(token);
  }
  return (found || !has_names) != exclude;  // a list without names stands for all
}

std::vector<NetworkInterface> select_interfaces(const std::vector<NetworkInterface>& all,
                                                const BootstrapOptions& options,
                                                const std::optional<SocketAddress>& near) {
  std::vector<NetworkInterface> candidates;
  for (const auto& interface : all) {
    if (!eligible(interface, options.family)) continue;
    if (options.interfaces.empty() || matches_interface_list(options.interfaces, interface.name)) {
      candidates.push_back(interface);
    }
  }
  if (!options.interfaces.empty() || candidates.empty()) return candidates;
  int best = automatic_class(candidates.front(), near);
  for (const auto& interface : candidates) best = std::min(best, automatic_class(interface, near));
  std::erase_if(candidates, [&](const auto& interface) { return automatic_class(interface, near) != best; });
  return candidates;
}

NetworkInterface bootstrap_interface(const BootstrapOptions& options) {
  std::optional<SocketAddress> near;
  if (options.comm_id) {
    const auto where = split_host_and_port(*options.comm_id);
    if (where) near = resolve(*where, options.family);
  }
  const auto chosen = select_interfaces(list_interfaces(), options, near);
  if (chosen.empty()) {
    fail(ncclInvalidUsage,
         "Bootstrap : no socket interface found (NCCL_SOCKET_IFNAME {}, NCCL_SOCKET_FAMILY {}): check these two, "
         "and that "
         "an interface they allow is up and has an address",
         options.interfaces.empty() ? "unset" : options.interfaces,
         options.family == AF_INET    ? "AF_INET"
         : options.family == AF_INET6 ? "AF_INET6"
                                      : "unset");
  }
  const NetworkInterface& first = chosen.front();
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    log_info(Subsystem::kBootstrap, "Bootstrap: Using {}:{}", first.name, first.address.to_string());
  }
  return first;
}

}  // namespace nitinol
