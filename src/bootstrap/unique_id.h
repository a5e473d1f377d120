// The unique id: where the rendezvous point (the root) listens and the secret that everybody must prove to know.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "bootstrap/address.h"
#include "bootstrap/options.h"
#include "bootstrap/secret.h"
#include "nccl.h"

namespace nitinol {

struct UniqueId {
  Secret secret;
  SocketAddress root;
  std::array<std::uint8_t, 16> random{};  // tells ids apart in logs; equal for all ids from one NCCL_COMM_ID
  std::int64_t maker = 0;                 // the process whose root it is, for sentences; 0: from an address
  std::uint64_t network = 0;              // where it listens: network_identity(), 0: unknown
  std::uint64_t maker_namespace = 0;      // in which the maker's number counts
  bool from_address = false;              // from NCCL_COMM_ID: rank 0 hosts the root when it joins

  friend bool operator==(const UniqueId&, const UniqueId&) = default;
};

/// Makes an id and starts its root in this process. With options.comm_id the id is derived from that address instead
/// and nothing is started; its secret is then no better than the address is hard to guess. Throws Error.
UniqueId make_unique_id(const BootstrapOptions& options);

/// The 128 bytes that applications carry around. parse throws Error(ncclInvalidArgument) if they are none of ours, or
/// were damaged on their way: nobody would ever meet who has them.
ncclUniqueId serialise(const UniqueId& id);
UniqueId parse_unique_id(const ncclUniqueId& bytes);
/// Makes bytes that were changed on purpose count as undamaged.
void seal(ncclUniqueId& bytes);

/// Names the ids in their order, and gives nothing away. There is at least one.
KeyId name_of_list(std::span<const UniqueId> ids);

/// A number that names the id in logs (not secret).
std::uint64_t short_hash(const UniqueId& id);

}  // namespace nitinol
