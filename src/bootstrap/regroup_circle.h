// Whether a rank that meets others again (Bootstrap::regroup) waits for ever, by what they say of their meetings: ranks
// that wait, by whatever way, for each other in meetings that differ never meet. Pure.
//
// Without such a circle ranks may mean it: one that is left out of a meeting may wait for a member, for the next one.
// Not so in the repair of a communicator that has been revoked: who waits there for a rank that leaves it out, and that
// rank, do not agree about who is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "bootstrap/messages.h"

namespace nitinol {

using RegroupWords = std::map<int, RegroupWord>;  // by the rank whose they are
using NameOfRank = std::function<std::string(int rank)>;

/// Why a rank waits for ever.
struct RegroupCircle {
  using Involved = std::set<std::pair<int, std::uint64_t>>;  // ranks, each with its meeting

  std::string sentence;
  ncclResult_t code = ncclInvalidUsage;  // ncclRemoteError: a rank that it waits for has left
  Involved involved{};
};

bool leaves_out(const RegroupWord& word, int rank);
bool is_in_meeting_of(const RegroupWord& word, const RegroupWord& other);
/// "rank 1 (host h, pid 7, device 1) excludes 2, 3".
std::string excludes(const RegroupWord& word, const NameOfRank& name_of);

/// `words`: of others than the rank of `mine`, as far as they have said any; `together`: ranks that are known to be in
/// its meeting. Nothing if those it waits for may come yet. Who says nothing may.
std::optional<RegroupCircle> circle_of(const RegroupWord& mine, const RegroupWords& words,
                                       const std::set<int>& together, const NameOfRank& name_of);

}  // namespace nitinol
