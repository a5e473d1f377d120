// Where ranks find the arenas of ranks in the same process.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "executor/cpu/arena.h"

namespace nitinol::cpu {

/// A rank of a communicator.
struct RankName {
  std::array<uint64_t, 2> identity{};
  int rank = 0;
  friend auto operator<=>(const RankName&, const RankName&) = default;
};

/// Enters an arena for as long as it lives.
void enter_arena(const RankName& name, const std::shared_ptr<Arena>& arena);
void remove_arena(const RankName& name);

/// The arena that the rank has entered; waits until it has. Throws Error if it has been removed, at the deadline, or
/// soon after `given_up` says so.
std::shared_ptr<Arena> find_arena(
    const RankName& name, std::chrono::steady_clock::time_point deadline,
    const std::function<bool()>& given_up = [] { return false; });

}  // namespace nitinol::cpu
