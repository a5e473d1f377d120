#include "executor/collective_waits.h"

namespace nitinol {

CollectiveWaits read_collective_waits(const CallPage& page) {
  const auto words = page.collective_waits.find(page.collective_waits.last());
  return words ? CollectiveWaits{(*words)[0], {{(*words)[1], (*words)[2]}}} : CollectiveWaits{};
}

void note_collective_waits(CallPage& page, const CollectiveWaits& more) {
  const CollectiveWaits before = read_collective_waits(page);
  RankSet all = more.ranks;
  if (before.launch == more.launch) all.add(before.ranks);
  if (!more.ranks.any() || (before.launch == more.launch && all == before.ranks)) return;
  page.collective_waits.add(page.collective_waits.last() + 1, {more.launch, all.bits[0], all.bits[1]});
}

uint64_t collective_waits_on(const CallBoard& board) {
  uint64_t written = 0;
  for (int rank = 0; rank < board.ranks(); ++rank) written += board.page(rank).collective_waits.last();
  return written;
}

}  // namespace nitinol
