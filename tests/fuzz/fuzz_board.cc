// What other ranks may have written on the call board, while this one looks at it and tells of it.
// LIBRARIES: nitinol_executor
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "executor/call_check.h"
#include "executor/kernel_waits.h"
#include "executor/long_circle.h"
#include "executor/marked_calls.h"
#include "executor/run_check.h"
#include "scribble.h"

namespace {

using namespace nitinol;

CollectiveWork work_of(uint8_t byte) {
  CollectiveWork work;
  work.what = static_cast<Collective>(byte % kCollectives);
  work.count = byte;
  return work;
}

/// How many ranks there are, three collectives, a message's size and peer, and then what the others write.
constexpr std::size_t kHead = 6;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kHead || size > (1 << 16)) return 0;
  const int ranks = fuzz::ranks_from(data[0]);
  const CallBoard board(SharedMemory::create(CallBoard::bytes_for(ranks), false), ranks);
  const std::vector<Peer> peers(static_cast<std::size_t>(ranks));
  for (int i = 1; i <= 3; ++i) note_calls(board, 0, Launch{{work_of(data[i])}, {}}, data[i] % 2 == 1);
  MessageWork message;
  message.bytes = data[4];
  message.peer = fuzz::stranger_from(data[5], ranks);
  RunNotes notes{};
  for (uint32_t i = 1; i <= data[1]; ++i) notes.note[RunNotes::place(i)] = RunNote::of({i, data[2]}, data[3]);
  for (int line = 0; line < RunLines::count(ranks); ++line) board.runs(0, line).take_over(notes);
  note_calls(board, 0, Launch{{}, {message}}, false);

  fuzz::Scribbler strangers(board, std::span(data, size).subspan(kHead));
  while (strangers.write_one()) continue;
  CallCheck check(board, peers, 0, 1 << 16);
  PresentLaunch present(board, 0, 1 << 16);
  StoppedPeers stopped;
  StreamPlaces places;
  LongCircle circle(present, LongCircle::Self{{}, peers, places});
  KernelWaits kernels(board, peers, 0);
  KernelWait wait;
  for (int peer = 1; peer < ranks; ++peer) (data[2] % 2 == 0 ? wait.for_data : wait.for_room).add(peer);
  if (data[1] % 2 == 0) wait.collective = Signature::of(work_of(data[2]), 0);
  wait.messages[data[1] % 3] = {.for_data = wait.for_data, .for_room = wait.for_room, .stands = data[1] % 4 == 1};
  CallCheck::Clock::time_point now{};
  for (int i = 0; i < 3; ++i) {
    now += std::chrono::seconds(1);
    static_cast<void>(check.look([] { return false; }, now));
    for (int peer = 1; peer < ranks; ++peer) static_cast<void>(check.doings_of(peer, i % 2 == 0));
    static_cast<void>(check.difference_in_the_end());
    for (int peer = 1; peer < ranks; ++peer) {
      const SeenTag tag{data[3] * 0x10101U, data[4] % 2 == 0 ? 0xffU : 0U};  // so short that something may fit
      static_cast<void>(find_marked_call(board, peer, 0, i % 2 == 0, tag));
    }
    present.look([&] { return std::optional<uint64_t>(data[1] % 4); }, now);
    static_cast<void>(stopped.look(present, peers, now));
    static_cast<void>(circle.look());
    static_cast<void>(find_different_run(board, 0));
    for (int looks = 0; looks < 30; ++looks) {
      for (int rank = 0; rank < ranks; ++rank) board.page(rank).kernel_looks.fetch_add(1);
      write_kernel_wait(board.page(0), wait);
      static_cast<void>(kernels.look());
    }
  }
  return 0;
}
