// Which network interface the bootstrap uses: the rules of NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY, and the automatic
// choice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bootstrap/address.h"
#include "bootstrap/options.h"

namespace nitinol {

struct NetworkInterface {
  std::string name;
  SocketAddress address;  // port 0
  int prefix_bits = 0;    // length of the subnet's prefix
};

/// The interfaces that are up, in the system's order; one entry per address.
std::vector<NetworkInterface> list_interfaces();

/// Does `list` ([^][=]token[,token]...) choose this name?
bool matches_interface_list(const std::string& list, const std::string& name);

/// The interfaces of `all` that may be used, the one for the bootstrap first. `near` is the address of NCCL_COMM_ID, if
/// set. A list given by the user replaces the automatic choice, which otherwise takes the best class that has any: the
/// subnet of `near`, ib*, others, docker*, lo, virbr*.
std::vector<NetworkInterface> select_interfaces(const std::vector<NetworkInterface>& all,
                                                const BootstrapOptions& options,
                                                const std::optional<SocketAddress>& near);

/// The interface for the bootstrap on this host; throws Error(ncclInvalidUsage) if there is none.
NetworkInterface bootstrap_interface(const BootstrapOptions& options);

}  // namespace nitinol
