// What other ranks may write on the board by which sends and receives are compared (NITINOL_CHECK=strict), while this
// one waits for their ends of its messages.
// LIBRARIES: nitinol_comm
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/strict_board.h"
#include "scribble.h"

namespace {

using namespace nitinol;

MessageWork message_of(uint8_t byte, int ranks) {
  MessageWork message;
  message.direction = byte % 2 == 0 ? MessageWork::Direction::kSend : MessageWork::Direction::kReceive;
  message.peer = fuzz::stranger_from(byte, ranks);
  message.bytes = 1 + byte % 3U;
  message.stated = static_cast<DataType>(byte % kDataTypes);
  return message;
}

/// The others have written all that they write, so nothing more comes of waiting.
struct NothingMore {};

/// How many ranks there are, the number of the next collective, a group of three messages, and what the others write.
constexpr std::size_t kHead = 5;
constexpr int kPiecesALook = 4;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < kHead || size > (1 << 16)) return 0;
  const int ranks = fuzz::ranks_from(data[0]);
  const std::size_t bytes = CallBoard::bytes_for(ranks);
  SharedMemory memory = SharedMemory::create(bytes, true);
  const CallBoard theirs(SharedMemory::map(memory.share(), bytes), ranks);
  StrictBoard board(std::move(memory), std::vector<Peer>(static_cast<std::size_t>(ranks)), 0);
  const Signature collective{.sequence = data[1], .count = 1, .call = 0};
  board.wait_to_call(&collective);
  board.wait_to_call(nullptr);

  fuzz::Scribbler strangers(theirs, std::span(data, size).subspan(kHead));
  strangers.write_one();  // before this rank calls; the rest while it waits
  try {
    auto messages = board.note({message_of(data[2], ranks), message_of(data[3], ranks), message_of(data[4], ranks)},
                               data[1] == 0xff);
    board.wait(std::move(messages), [&](const StrictBoard::Unmatched& message, std::chrono::milliseconds) {
      static_cast<void>(board.describe(message.work.peer));
      for (int i = 0; i < kPiecesALook; ++i) {
        if (!strangers.write_one() && i == 0) throw NothingMore{};
      }
    });
  } catch (const Error&) {  // as it should if the ends differ, or never come
  } catch (const NothingMore&) {
  }
  while (strangers.write_one()) continue;
  static_cast<void>(find_circle(theirs, 0));  // which waiting looks for only after half a second
  board.leave();
  return 0;
}
