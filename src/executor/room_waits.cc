#include "executor/room_waits.h"

namespace nitinol {

RoomWaits read_room_waits(const CallPage& page) {
  const auto words = page.room_waits.find(page.room_waits.last());
  return words ? RoomWaits{(*words)[0], {{(*words)[1], (*words)[2]}}} : RoomWaits{};
}

void note_room_waits(CallPage& page, const RoomWaits& more) {
  const RoomWaits before = read_room_waits(page);
  RankSet all = more.ranks;
  if (before.launch == more.launch) all.add(before.ranks);
  if (!more.ranks.any() || (before.launch == more.launch && all == before.ranks)) return;
  page.room_waits.add(page.room_waits.last() + 1, {more.launch, all.bits[0], all.bits[1]});
}

uint64_t room_waits_on(const CallBoard& board) {
  uint64_t written = 0;
  for (int rank = 0; rank < board.ranks(); ++rank) written += board.page(rank).room_waits.last();
  return written;
}

}  // namespace nitinol
