// For whom the ranks' kernels wait to take what they send: so a rank may be held up in a collective by one of which it
// needs nothing. Each rank's looking thread writes it on the call board; of launches of graphs kernel_waits.h tells.
#pragma once

#include <cstdint>

#include "executor/call_board.h"
#include "executor/rank_set.h"

namespace nitinol {

/// Of a rank's launch, of whom it has waited for room as far as its looking thread has seen.
struct RoomWaits {
  uint64_t launch = 0;
  RankSet ranks{};

  bool in(uint64_t of_launch, int for_rank) const { return of_launch == launch && ranks.has(for_rank); }
};
RoomWaits read_room_waits(const CallPage& page);

/// By the page's rank alone: in its launch it has waited for these ranks, too.
void note_room_waits(CallPage& page, const RoomWaits& more);

/// How often any rank has written something new.
uint64_t room_waits_on(const CallBoard& board);

}  // namespace nitinol
