#include "executor/call_board.h"

namespace nitinol {
namespace {

size_t logs_of(int ranks) { return 2 * static_cast<size_t>(ranks); }

size_t bytes_of_logs(int ranks) { return logs_of(ranks) * (sizeof(MessageLog) + sizeof(CapturedMessages)); }

size_t bytes_of_runs(int ranks) { return static_cast<size_t>(RunLines::count(ranks)) * sizeof(SharedRunNotes); }

size_t bytes_of_rank(int ranks) {
  return sizeof(CallPage) + bytes_of_logs(ranks) + bytes_of_runs(ranks) +
         static_cast<size_t>(ranks) * sizeof(std::atomic<HostCall>);
}

static_assert(std::atomic<HostCall>::is_always_lock_free && sizeof(std::atomic<HostCall>) == sizeof(HostCall));
static_assert(sizeof(MessageLog) % alignof(CapturedMessages) == 0 &&
              sizeof(CapturedMessages) % alignof(SharedRunNotes) == 0 &&
              sizeof(SharedRunNotes) % alignof(std::uint64_t) == 0);
static_assert(sizeof(CallPage) % alignof(MessageLog) == 0 && sizeof(MessageLog) % alignof(std::uint64_t) == 0);

/// Of those that count: visit(message, whether it is sent).
template <class Visit>
void for_each_message(const Launch& launch, int rank, Visit&& visit) {
  for (const MessageWork& message : launch.messages) {
    if (message.peer == rank || message.bytes == 0) continue;
    visit(message, message.is_send());
  }
}

/// So that every page of memory begins with one rank's notes: ranks do not disturb each other.
size_t stride_of(int ranks) { return (bytes_of_rank(ranks) + 4095) / 4096 * 4096; }

}  // namespace

size_t CallBoard::bytes_for(int ranks) { return static_cast<size_t>(ranks) * stride_of(ranks); }

CallPage& CallBoard::page(int rank) const {
  return *reinterpret_cast<CallPage*>(memory_.data() + static_cast<size_t>(rank) * stride_of(ranks_));
}

std::byte* CallBoard::after_page(int rank) const {
  return memory_.data() + static_cast<size_t>(rank) * stride_of(ranks_) + sizeof(CallPage);
}

MessageLog& CallBoard::log(int rank, int index) const { return reinterpret_cast<MessageLog*>(after_page(rank))[index]; }

CapturedMessages& CallBoard::captured_messages(int rank, int peer, bool sends) const {
  std::byte* const first = after_page(rank) + logs_of(ranks_) * sizeof(MessageLog);
  return reinterpret_cast<CapturedMessages*>(first)[2 * peer + (sends ? 0 : 1)];
}

SharedRunNotes& CallBoard::runs(int rank, int line) const {
  return reinterpret_cast<SharedRunNotes*>(after_page(rank) + bytes_of_logs(ranks_))[line];
}

std::atomic<HostCall>& CallBoard::host_call(int rank, int other) const {
  std::byte* const first = after_page(rank) + bytes_of_logs(ranks_) + bytes_of_runs(ranks_);
  return reinterpret_cast<std::atomic<HostCall>*>(first)[other];
}

void note_calls(const CallBoard& board, int rank, const Launch& launch, bool captured) {
  CallPage& page = board.page(rank);
  if (captured) {
    page.captures.store(1, std::memory_order_release);
    for (const CollectiveWork& work : launch.collectives) page.captured.add(work, 0);
    for_each_message(launch, rank, [&](const MessageWork& message, bool sends) {
      CapturedMessages& log = board.captured_messages(rank, message.peer, sends);
      log.add(log.last() + 1, {MessageSignature{.bytes = message.bytes, .type = message.stated}.packed()});
    });
    return;
  }
  const uint64_t number = page.launches.load(std::memory_order_relaxed) + 1;
  page.launches.store(number, std::memory_order_relaxed);  // before all that follows
  for (const CollectiveWork& work : launch.collectives) page.calls.add(work, number);
  bool messages = false;
  for_each_message(launch, rank, [&](const MessageWork& message, bool sends) {
    MessageLog& log = sends ? board.sent(rank, message.peer) : board.received(rank, message.peer);
    log.add({message.bytes, page.calls.last(), number, message.stated});
    messages = true;
  });
  page.in_messages.store(messages ? 1 : 0, std::memory_order_release);
  if (messages) page.messages.store(page.messages.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  page.written.store(number, std::memory_order_release);
}

void announce_calls(const CallBoard& board, int rank, const Launch& launch) {
  CallPage& page = board.page(rank);
  uint64_t number = page.calls.last();
  for (const CollectiveWork& work : launch.collectives) {
    const Signature next = Signature::of(work, ++number);
    if (number <= page.calls.last() + page.announced.kKept) page.announced.add(number, {next.count, next.call});
  }
}

void note_waiting_to_call(CallPage& page, const Signature& next) {
  page.waits_to_call.add(page.waits_to_call.last() + 1, {next.sequence, next.count, next.call});
}

void note_waiting_to_call(const CallBoard& board, int rank, const CollectiveWork* next) {
  CallPage& page = board.page(rank);
  note_waiting_to_call(page, next == nullptr ? Signature{} : Signature::of(*next, page.calls.last() + 1));
}

Signature waits_to_call(const CallPage& page) {
  const auto words = page.waits_to_call.find(page.waits_to_call.last());
  return words ? Signature{(*words)[0], (*words)[1], (*words)[2]} : Signature{};
}

bool has_come_to(const CallPage& page, uint64_t number) {
  const uint64_t last = page.waits_to_call.last();
  for (uint64_t note = last; note > 0 && last - note < page.waits_to_call.kKept; --note) {
    const auto words = page.waits_to_call.find(note);
    if (words && (*words)[0] >= number) return true;
  }
  return false;
}

std::optional<Signature> collective_of_launch(const CallPage& page, uint64_t launch) {
  const uint64_t last = page.calls.last();
  for (uint64_t number = last; number > 0 && last - number < page.calls.kKept; --number) {
    const auto in = page.calls.launch_of(number);
    if (!in || *in < launch) return std::nullopt;
    if (*in == launch) return page.calls.find(number);
  }
  return std::nullopt;
}

std::optional<Signature> find_call(const CallPage& page, uint64_t number) {
  if (number <= page.calls.last()) return page.calls.find(number);
  const auto announced = page.announced.find(number);
  return announced ? std::optional(Signature{number, (*announced)[0], (*announced)[1]}) : std::nullopt;
}

}  // namespace nitinol
