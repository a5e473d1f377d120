// For whom the ranks' kernels wait in collectives: to take what they send, or to send what they pass on or combine. So
// a rank may be held up in a collective by one of which its result needs nothing. Each rank's looking thread writes it
// on the call board; of launches of graphs kernel_waits.h tells.
#pragma once

#include <cstdint>

#include "executor/call_board.h"
#include "executor/rank_set.h"

namespace nitinol {

/// Of a rank's launch, for whom it has waited in a collective as far as its looking thread has seen.
struct CollectiveWaits {
  uint64_t launch = 0;
  RankSet ranks{};

  bool in(uint64_t of_launch, int for_rank) const { return of_launch == launch && ranks.has(for_rank); }
};
CollectiveWaits read_collective_waits(const CallPage& page);

/// By the page's rank alone: in its launch it has waited for these ranks, too.
void note_collective_waits(CallPage& page, const CollectiveWaits& more);

/// How often any rank has written something new.
uint64_t collective_waits_on(const CallBoard& board);

}  // namespace nitinol
