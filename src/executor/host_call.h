// Calls in which a rank waits on the host for others to make them too, and issues nothing before.
#pragma once

#include <cstdint>

namespace nitinol {

/// As it stands in shared memory.
enum class HostCall : uint32_t { kNone, kSplit, kShrink, kLeave };

/// "ncclCommSplit".
inline const char* name_of(HostCall call) {
  switch (call) {
    case HostCall::kNone: return "nothing";
    case HostCall::kSplit: return "ncclCommSplit";
    case HostCall::kShrink: return "ncclCommShrink";
    case HostCall::kLeave: return "ncclCommFinalize or ncclCommDestroy";
  }
  return "another function";  // a peer's memory may hold anything
}

}  // namespace nitinol
