#include "executor/call_check.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "executor/call_circles.h"
#include "executor/call_words.h"
#include "executor/collective_waits.h"
#include "executor/kernel_waits.h"

namespace nitinol {
namespace {

/// A rank that gets no further for so long is stuck.
constexpr std::chrono::milliseconds kStuckAfter{500};

/// Collectives of a peer among which one is looked for that cannot end.
constexpr uint64_t kCollectivesToSearch = 64;

/// The number of the newest call that both have issued if they do not agree on all up to it; 0 if they do, or if it is
/// not known.
template <class Log>
uint64_t disagreement(const Log& mine, const Log& theirs) {
  const uint64_t common = std::min(mine.last(), theirs.last());
  const auto my_trace = mine.trace(common);
  const auto their_trace = theirs.trace(common);
  return my_trace && their_trace && *my_trace != *their_trace ? common : 0;
}

template <class Log>
uint64_t first_kept(const Log& a, const Log& b) {
  const uint64_t last = std::max(a.last(), b.last());
  return last >= Log::kKept ? last - Log::kKept + 1 : 1;
}

/// The first message that one rank has issued and the other has not; nothing if there is none, or it is forgotten.
std::optional<MessageLog::Note> first_unmatched(const MessageLog& issued, uint64_t matched) {
  return matched < issued.last() ? issued.find(matched + 1) : std::nullopt;
}

/// The first collective beyond so many that moves anything: nobody misses one without elements.
template <size_t kNotes>
std::optional<Signature> first_beyond(const CallLog<kNotes>& calls, uint64_t number) {
  const uint64_t last = calls.last();
  const uint64_t kept = last > calls.kKept ? last - calls.kKept : 0;
  for (number = std::max(number, kept); number < last;) {
    if (auto call = calls.find(++number); call && call->count > 0) return call;
  }
  return std::nullopt;
}

}  // namespace

std::string CallCheck::describe(int peer) const { return describe_rank(peer, peers_[static_cast<size_t>(peer)]); }

Doings CallCheck::look_at(int peer, bool answered) const {
  const CallPage& page = board_.page(peer);
  Doings doings;
  doings.begun = page.calls.last();
  doings.last = page.calls.find(doings.begun);
  const bool running = page.running.load(std::memory_order_acquire) != 0;
  doings.in_messages = answered && running && page.in_messages.load(std::memory_order_acquire) != 0;
  doings.running = answered ? std::optional(running && !doings.in_messages) : std::nullopt;
  doings.stopped = page.stopped.load(std::memory_order_acquire) != 0;
  const KernelWait wait = read_kernel_wait(page).wait;
  if (answered && wait.any() && !wait.unknown) {  // perhaps in a graph
    doings.last = wait.collective;
    doings.running = wait.collective.has_value();
    doings.in_messages = !wait.collective;
  }
  return doings;
}

std::string CallCheck::doings_of(int peer, bool answered) const {
  Doings doings = look_at(peer, answered);
  doings.process = process_of(peers_[static_cast<size_t>(peer)], peers_[static_cast<size_t>(rank_)]);
  return doings_text(describe(peer), doings);
}

std::optional<std::string> CallCheck::look(const std::function<bool()>& idle, Clock::time_point now) {
  const auto finding = find();
  if (!finding) without_progress_since_.reset();
  if (!finding) return look_for_circle(idle, now);
  if (finding->certain || stuck(idle, now)) return finding->sentence;
  if (finding->differs && !std::exchange(warned_, true)) {
    warning_ = formatted("{}; results may be wrong, unless launches of graphs, which are not seen, account for it",
                         finding->sentence);
  }
  return std::nullopt;
}

/// Circles are looked for once when all have been quiet for a while.
std::optional<std::string> CallCheck::look_for_circle(const std::function<bool()>& idle, Clock::time_point now) {
  if (board_.page(rank_).messages.load(std::memory_order_acquire) == 0) return std::nullopt;
  if (!circles_.may_be_found(board_, now) || idle()) return std::nullopt;
  const auto circle = find_circle(board_, unreceived_);
  return circle ? std::optional(circle_sentence(board_, peers_, *circle)) : std::nullopt;
}

bool CallCheck::stuck(const std::function<bool()>& idle, Clock::time_point now) {
  const uint64_t issued = board_.page(rank_).calls.last();
  const bool moves = std::exchange(issued_then_, issued) != issued || idle();
  if (moves || !without_progress_since_) without_progress_since_ = now;
  return !moves && now - *without_progress_since_ >= kStuckAfter;
}

std::optional<CallCheck::Finding> CallCheck::find() const {
  std::optional<Finding> uncertain;
  for (int peer = 0; peer < board_.ranks(); ++peer) {
    if (peer == rank_) continue;
    auto finding = find_with(peer);
    if (finding && finding->certain) return finding;
    if (finding && !uncertain) uncertain = std::move(finding);
  }
  return uncertain;
}

CallCheck::Standing CallCheck::standing_of(int peer) const {
  const CallPage& page = board_.page(peer);
  Standing standing;
  standing.leaves = page.leaving.load(std::memory_order_acquire) != 0;
  standing.on_host = board_.host_call(peer, rank_).load();
  standing.begun = page.calls.last();
  standing.waits_to_call = waits_to_call(page);
  return standing;
}

std::optional<CallCheck::Finding> CallCheck::find_with(int peer) const {
  const CallPage& mine = board_.page(rank_);
  const CallPage& theirs = board_.page(peer);
  const Standing standing = standing_of(peer);  // first: whatever the peer did before is seen below
  auto sentence = different_call(peer, mine.calls, theirs.calls);
  if (!sentence) sentence = different_announced(peer);
  const bool differs = sentence.has_value();
  if (!sentence) sentence = different_message(rank_, peer);
  if (!sentence) sentence = different_message(peer, rank_);
  if (!sentence) sentence = never(peer, standing);
  if (sentence) {
    const bool graphs =
        mine.captures.load(std::memory_order_acquire) != 0 || theirs.captures.load(std::memory_order_acquire) != 0;
    return Finding{std::move(*sentence), !graphs, differs};
  }
  if (auto captured = difference_in_graphs(peer)) return Finding{std::move(*captured), false, true};
  if (auto left = left_without(peer, standing.leaves)) return Finding{std::move(*left), false};
  if (auto other = different_on_host(peer, standing.on_host)) return Finding{std::move(*other), false};
  return std::nullopt;
}

std::optional<std::string> CallCheck::difference_in_graphs(int peer) const {
  const auto found = different_call(peer, board_.page(rank_).captured, board_.page(peer).captured);
  return found ? std::optional("among the calls captured into graphs, " + *found) : std::nullopt;
}

template <class Log>
std::optional<std::string> CallCheck::different_call(int peer, const Log& mine, const Log& theirs) const {
  const uint64_t common = disagreement(mine, theirs);
  if (common == 0) return std::nullopt;
  for (uint64_t number = first_kept(mine, theirs); number <= common; ++number) {
    const auto my_call = mine.find(number);
    const auto their_call = theirs.find(number);
    if (!my_call || !their_call || *my_call == *their_call) continue;
    return mismatch_sentence(rank_, my_call->text(), describe(peer), their_call->text());
  }
  return mismatch_sentence(rank_, formatted("something before number {}", common), describe(peer),
                           "what is too long ago to tell (NITINOL_CHECK=strict tells)");
}

/// What one of two has issued, or is about to, and the other is about to.
std::optional<std::string> CallCheck::different_announced(int peer) const {
  const CallPage& mine = board_.page(rank_);
  const CallPage& theirs = board_.page(peer);
  const uint64_t common = std::min(mine.calls.last(), theirs.calls.last());
  for (uint64_t number = common + 1; number <= common + mine.announced.kKept; ++number) {
    const auto my_call = find_call(mine, number);
    const auto their_call = find_call(theirs, number);
    if (!my_call || !their_call || *my_call == *their_call) continue;
    return mismatch_sentence(rank_, my_call->text(), describe(peer), their_call->text());
  }
  return std::nullopt;
}

std::optional<std::string> CallCheck::different_message(int from, int to) const {
  const MessageLog& sent = board_.sent(from, to);
  const MessageLog& received = board_.received(to, from);
  const uint64_t common = disagreement(sent, received);
  if (common == 0) return std::nullopt;
  std::string sends = formatted("Send to rank {}", to);
  std::string receives = formatted("Recv of another size or type from rank {}", from);
  for (uint64_t number = first_kept(sent, received); number <= common; ++number) {
    const auto out = sent.find(number);
    const auto in = received.find(number);
    if (!out || !in || (out->bytes == in->bytes && out->type == in->type)) continue;
    sends = MessageSignature{number, out->bytes, out->type}.text(true, to);
    receives = MessageSignature{number, in->bytes, in->type}.text(false, from);
    break;
  }
  return from == rank_ ? mismatch_sentence(rank_, sends, describe(to), receives)
                       : mismatch_sentence(rank_, receives, describe(from), sends);
}

/// Once all have left.
std::optional<std::string> CallCheck::unreceived(int from, int to) const {
  // A receiver that has not said here that it leaves may not have written down what it did.
  if (board_.page(to).leaving.load(std::memory_order_acquire) == 0) return std::nullopt;
  const uint64_t received = board_.received(to, from).last();
  const auto note = first_unmatched(board_.sent(from, to), received);
  if (!note) return std::nullopt;
  return unreceived_sentence(describe(from), describe(to), to, board_.sent(from, to).last(),
                             {received + 1, note->bytes, note->type});
}

/// Messages between this rank and the peer that can never move.
std::optional<std::string> CallCheck::never(int peer, const Standing& theirs) const {
  const uint64_t sent = board_.sent(peer, rank_).last();
  const uint64_t received = board_.received(peer, rank_).last();
  const auto receive = first_unmatched(board_.received(rank_, peer), sent);
  const auto send = first_unmatched(board_.sent(rank_, peer), received);
  if (receive) {
    if (auto sentence = never(peer, theirs, *receive, sent + 1, false)) return sentence;
  }
  if (!send || send->bytes <= unreceived_) return std::nullopt;
  return never(peer, theirs, *send, received + 1, true);
}

std::optional<std::string> CallCheck::never(int peer, const Standing& theirs, const MessageLog::Note& message,
                                            uint64_t number, bool sends) const {
  const std::string reason = reason_why_never(peer, theirs, message.after);
  if (reason.empty()) return std::nullopt;
  const MessageSignature signature{number, message.bytes, message.type};
  return message_sentence(rank_, signature.text(sends, peer), describe(peer), reason);
}

std::string CallCheck::unmatched_message(int peer) const {
  const uint64_t sent = board_.sent(peer, rank_).last();
  const uint64_t received = board_.received(peer, rank_).last();
  if (const auto receive = first_unmatched(board_.received(rank_, peer), sent)) {
    return MessageSignature{sent + 1, receive->bytes, receive->type}.text(false, peer);
  }
  const auto send = first_unmatched(board_.sent(rank_, peer), received);
  return send && send->bytes > unreceived_ ? MessageSignature{received + 1, send->bytes, send->type}.text(true, peer)
                                           : "";
}

/// Why the peer never comes to a message that this rank issued after so many collectives; "" if it may.
std::string CallCheck::reason_why_never(int peer, const Standing& theirs, uint64_t after) const {
  if (theirs.leaves) return reason_leaving();
  const CollectiveWaits inside = read_collective_waits(board_.page(peer));
  const uint64_t last = std::min(theirs.begun, after + kCollectivesToSearch);
  for (uint64_t number = after + 1; number <= last; ++number) {
    const auto collective = board_.page(peer).calls.find(number);
    if (!collective) continue;
    const bool waits_in_it = inside.in(board_.page(peer).calls.launch_of(number).value_or(0), rank_);
    if (waits_in_it || collective->needs(peer, rank_)) return reason_collective(*collective, rank_);
  }
  const Signature& next = theirs.waits_to_call;
  const bool waits = next.sequence > after && next.sequence == theirs.begun + 1;
  return waits && next.needs(peer, rank_) ? reason_next(next, rank_) : "";
}

/// The peer has left without a collective that this rank has issued.
std::optional<std::string> CallCheck::left_without(int peer, bool leaves) const {
  if (!leaves) return std::nullopt;
  const auto call = first_beyond(board_.page(rank_).calls, board_.page(peer).calls.last());
  if (!call) return std::nullopt;
  return leaver_sentence(rank_, call->text(), describe(peer));
}

/// The peer waits on the host for this rank to make a call, and has not issued a collective that this rank has. Where
/// there are graphs it may run in one.
std::optional<std::string> CallCheck::different_on_host(int peer, HostCall call) const {
  const CallPage& mine = board_.page(rank_);
  const CallPage& theirs = board_.page(peer);
  if (call == HostCall::kNone || board_.host_call(rank_, peer).load() != HostCall::kNone) return std::nullopt;
  if (mine.captures.load() != 0 || theirs.captures.load() != 0) return std::nullopt;
  if (theirs.stopped.load() != 0) return std::nullopt;  // it says itself why
  const auto collective = first_beyond(mine.calls, theirs.calls.last());
  if (!collective) return std::nullopt;
  return mismatch_sentence(rank_, collective->text(), describe(peer), name_of(call));
}

bool CallCheck::calls_match() const {
  const CallPage& mine = board_.page(rank_);
  for (int peer = 0; peer < board_.ranks(); ++peer) {
    const CallPage& theirs = board_.page(peer);
    if (peer == rank_ || mine.captures.load() != 0 || theirs.captures.load() != 0) continue;
    if (first_beyond(mine.calls, theirs.calls.last()) || first_beyond(theirs.calls, mine.calls.last())) return false;
    if (first_unmatched(board_.sent(rank_, peer), board_.received(peer, rank_).last())) return false;
    if (first_unmatched(board_.sent(peer, rank_), board_.received(rank_, peer).last())) return false;
  }
  return true;
}

/// Captured calls are not compared: whether and when they ran is not known.
std::optional<std::string> CallCheck::difference_in_the_end() const {
  std::optional<std::string> sentence;
  for (int peer = 0; peer < board_.ranks() && !sentence; ++peer) {
    const CallPage& mine = board_.page(rank_);
    const CallPage& theirs = board_.page(peer);
    if (peer == rank_ || mine.captures.load() != 0 || theirs.captures.load() != 0) continue;
    sentence = different_call(peer, mine.calls, theirs.calls);
    if (!sentence) sentence = different_message(rank_, peer);
    if (!sentence) sentence = different_message(peer, rank_);
    if (!sentence) sentence = unreceived(rank_, peer);
    if (!sentence) sentence = unreceived(peer, rank_);
    if (!sentence) sentence = left_without(peer, true);
    if (const auto call = first_beyond(theirs.calls, mine.calls.last()); call && !sentence) {
      sentence = leaver_sentence(peer, call->text(), describe(rank_));
    }
  }
  return sentence;
}

}  // namespace nitinol
