#include "executor/marked_calls.h"

namespace nitinol {
namespace {

template <class Log>
std::optional<std::string> find_collective(const Log& log, bool numbered, SeenTag tag) {
  const uint64_t last = log.last();
  for (uint64_t number = last; number > 0 && last - number < Log::kKept; --number) {
    const auto call = log.find(number);
    if (!call || !tag.fits(Signature{0, call->count, call->call}.tag())) continue;
    return Signature{numbered ? number : 0, call->count, call->call}.text();
  }
  return std::nullopt;
}

std::optional<std::string> find_message(const MessageLog& log, int peer, bool sends, SeenTag tag) {
  const uint64_t last = log.last();
  for (uint64_t number = last; number > 0 && last - number < MessageLog::kKept; --number) {
    const auto note = log.find(number);
    if (!note) continue;
    const MessageSignature message{number, note->bytes, note->type};
    if (tag.fits(message.tag())) return message.text(sends, peer);
  }
  return std::nullopt;
}

std::optional<std::string> find_message(const CapturedMessages& log, int peer, bool sends, SeenTag tag) {
  const uint64_t last = log.last();
  for (uint64_t number = last; number > 0 && last - number < CapturedMessages::kKept; --number) {
    const auto words = log.find(number);
    if (!words) continue;
    const auto message = MessageSignature::unpacked(0, (*words)[0]);
    if (tag.fits(message.tag())) return message.text(sends, peer);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> find_marked_call(const CallBoard& board, int rank, int peer, bool sends, SeenTag tag) {
  const CallPage& page = board.page(rank);
  auto found = find_collective(page.captured, false, tag);
  if (!found) found = find_message(board.captured_messages(rank, peer, sends), peer, sends, tag);
  if (!found) found = find_collective(page.calls, true, tag);
  if (!found) found = find_message(sends ? board.sent(rank, peer) : board.received(rank, peer), peer, sends, tag);
  return found;
}

}  // namespace nitinol
