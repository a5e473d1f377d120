// Whether ranks read and write each other's memory directly: what drivers promise, as far as settings allow it.
#pragma once

#include <span>

#include "model/peer.h"

namespace nitinol {

/// What NCCL_P2P_DISABLE and NCCL_P2P_LEVEL come to, in words: ranks for which they are the same decide alike.
const char* words_for_peers_to_reach();

/// Whether all ranks reach each other's memory, as far as drivers and settings say.
bool has_peer_access(std::span<const Peer> peers);

/// Whether that is to be tried before it is relied on, where it is there.
bool tries_peer_access(std::span<const Peer> peers);

/// That ranks that do not reach each other's memory have another way. Throws Error.
void require_way_through_host(std::span<const Peer> peers);

}  // namespace nitinol
