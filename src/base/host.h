// Which host this is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nitinol {

/// The host's name up to its first dot; "localhost" if it has none.
std::string host_name();

/// Equal for processes that may share memory: a hash of boot id and full host name (so that containers with names of
/// their own count as hosts), or of NCCL_HOSTID when that is set.
std::uint64_t host_identity();

/// Equal for processes in which an address of this host means the same, and nobody but the system that they share
/// answers for it: of one kernel, host name and network namespace. 0: unknown.
std::uint64_t network_identity();

/// A 64-bit hash (FNV-1a, then mixed), the same on every machine and in every version.
std::uint64_t stable_hash(std::string_view bytes);

}  // namespace nitinol
