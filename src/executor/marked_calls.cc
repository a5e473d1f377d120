#include "executor/marked_calls.h"

#include <algorithm>

namespace nitinol {
namespace {

/// The first that `text_of(number)` gives, from the newest number of a log to the oldest.
template <class Log, class TextOf>
std::optional<std::string> newest(const Log& log, TextOf&& text_of) {
  const uint64_t last = log.last();
  for (uint64_t back = 0; back < std::min<uint64_t>(last, Log::kKept); ++back) {
    if (auto text = text_of(last - back)) return text;
  }
  return std::nullopt;
}

template <class Log>
std::optional<std::string> find_collective(const Log& log, bool numbered, SeenTag tag) {
  return newest(log, [&](uint64_t number) -> std::optional<std::string> {
    const auto call = log.find(number);
    if (!call || !tag.fits(Signature{0, call->count, call->call}.tag())) return std::nullopt;
    return Signature{numbered ? number : 0, call->count, call->call}.text();
  });
}

}  // namespace

std::optional<std::string> find_marked_call(const CallBoard& board, int rank, int peer, bool sends, SeenTag tag) {
  const CallPage& page = board.page(rank);
  const MessageLog& issued = sends ? board.sent(rank, peer) : board.received(rank, peer);
  const CapturedMessages& captured = board.captured_messages(rank, peer, sends);
  const auto text_of = [&](const MessageSignature& message) {
    return tag.fits(message.tag()) ? std::optional(message.text(sends, peer)) : std::nullopt;
  };
  const auto captured_message = [&](uint64_t number) -> std::optional<std::string> {
    const auto words = captured.find(number);
    return words ? text_of(MessageSignature::unpacked(0, (*words)[0])) : std::nullopt;
  };
  const auto issued_message = [&](uint64_t number) -> std::optional<std::string> {
    const auto note = issued.find(number);
    return note ? text_of({number, note->bytes, note->type}) : std::nullopt;
  };
  auto found = find_collective(page.captured, false, tag);
  if (!found) found = newest(captured, captured_message);
  if (!found) found = find_collective(page.calls, true, tag);
  return found ? found : newest(issued, issued_message);
}

}  // namespace nitinol
