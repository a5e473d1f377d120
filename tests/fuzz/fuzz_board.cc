// What other ranks may have written on the call board, while this one looks at it and tells of it.
// LIBRARIES: nitinol_executor
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "executor/call_check.h"
#include "executor/long_circle.h"

namespace {

using namespace nitinol;

constexpr int kRanks = 2;
constexpr int kStranger = 1;

CollectiveWork work_of(uint8_t byte) {
  CollectiveWork work;
  work.what = static_cast<Collective>(byte % kCollectives);
  work.count = byte;
  return work;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 4 || size > (1 << 16)) return 0;
  const CallBoard board(SharedMemory::create(CallBoard::bytes_for(kRanks), false), kRanks);
  const std::vector<Peer> peers(kRanks);
  for (int i = 0; i < 3; ++i) note_calls(board, 0, Launch{{work_of(data[i])}, {}}, data[i] % 2 == 1);
  MessageWork message;
  message.peer = kStranger;
  message.bytes = data[3];
  note_calls(board, 0, Launch{{}, {message}}, false);

  // Pieces of the input, each with where it goes to in the stranger's part.
  auto* const theirs = reinterpret_cast<std::byte*>(&board.page(kStranger));
  const size_t most = CallBoard::bytes_for(kRanks) / kRanks;
  for (size_t at = 4; at + 3 < size;) {
    const size_t target = (data[at] | static_cast<size_t>(data[at + 1]) << 8) * 8 % most;
    const size_t bytes = std::min({static_cast<size_t>(data[at + 2]), size - at - 3, most - target});
    std::memcpy(theirs + target, data + at + 3, bytes);
    at += 3 + bytes;
  }
  CallCheck check(board, peers, 0, 1 << 16);
  PresentLaunch present(board, 0, 1 << 16);
  StoppedPeers stopped;
  StreamPlaces places;
  LongCircle circle(present, LongCircle::Self{{}, peers, places});
  CallCheck::Clock::time_point now{};
  for (int i = 0; i < 3; ++i) {
    now += std::chrono::seconds(1);
    static_cast<void>(check.look([] { return false; }, now));
    static_cast<void>(check.doings_of(kStranger, i % 2 == 0));
    static_cast<void>(check.difference_in_the_end());
    present.look([&] { return std::optional<uint64_t>(data[0] % 4); }, now);
    static_cast<void>(stopped.look(present, peers, now));
    static_cast<void>(circle.look());
  }
  return 0;
}
