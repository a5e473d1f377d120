#include "comm/strict_board.h"

#include <fcntl.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/registry.h"
#include "executor/call_circles.h"
#include "executor/call_words.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kName = 0x7374726963742d62;  // "strict-b"
constexpr int kMaker = 0;
constexpr auto kFirstSleep = 20us;
constexpr auto kLongestSleep = 1ms;

/// Those of this process.
Registry<StrictBoard>& registry() { return Registry<StrictBoard>::of_process(); }

}  // namespace

SharedMemory StrictBoard::make(HandleExchange& handles, int ranks) {
  SharedMemory memory = SharedMemory::create(CallBoard::bytes_for(ranks), true);
  const auto handle = std::make_shared<const MemoryHandle>(memory.share());
  handles.offer(kName, [handle] {
    return MemoryHandle{UniqueFd(::fcntl(handle->fd.get(), F_DUPFD_CLOEXEC, 0)), handle->bytes};
  });
  return memory;
}

SharedMemory StrictBoard::fetch(HandleExchange& handles, int ranks) {
  return SharedMemory::map(handles.fetch(kMaker, kName), CallBoard::bytes_for(ranks));
}

StrictBoard::StrictBoard(SharedMemory memory, std::vector<Peer> peers, int rank)
    : board_(std::move(memory), static_cast<int>(peers.size())), peers_(std::move(peers)), rank_(rank) {
  const std::lock_guard lock(registry().mutex);
  registry().all.push_back(this);
}

StrictBoard::~StrictBoard() {
  const std::lock_guard lock(registry().mutex);
  std::erase(registry().all, this);
}

void StrictBoard::hold_up(const void* teller, const HeldProgram& held, std::span<const StrictBoard* const> but) {
  const std::lock_guard lock(registry().mutex);
  for (StrictBoard* const board : registry().all) {
    if (std::find(but.begin(), but.end(), board) != but.end()) continue;
    board->board_.page(board->rank_).holder.tell(held.label, held.holder);
    board->teller_ = teller;
  }
}

void StrictBoard::let_go(const void* teller) {
  const std::lock_guard lock(registry().mutex);
  for (StrictBoard* const board : registry().all) {
    if (board->teller_ != teller) continue;
    board->board_.page(board->rank_).holder.label.clear();
    board->teller_ = nullptr;
  }
}

std::string StrictBoard::describe(int peer) const { return describe_rank(peer, peers_[static_cast<size_t>(peer)]); }

ProcessState StrictBoard::process_of(int peer) const {
  return nitinol::process_of(peers_[static_cast<size_t>(peer)], peers_[static_cast<size_t>(rank_)]);
}

std::vector<StrictBoard::Unmatched> StrictBoard::note(const std::vector<MessageWork>& messages, bool captured) {
  CallPage& page = board_.page(rank_);
  std::vector<Unmatched> noted;
  if (captured && !messages.empty()) page.captures.store(1, std::memory_order_release);
  if (!compares(rank_)) return noted;
  const uint64_t launch = page.launches.load(std::memory_order_relaxed) + 1;
  for (const MessageWork& work : messages) {
    if (work.peer == rank_ || work.bytes == 0) continue;                        // nothing is sent for these
    if (noted.empty()) page.launches.store(launch, std::memory_order_relaxed);  // before all that follows
    MessageLog& log = work.is_send() ? board_.sent(rank_, work.peer) : board_.received(rank_, work.peer);
    log.add({work.bytes, collectives_, launch, work.stated});
    noted.push_back({work, log.last()});
  }
  if (!noted.empty()) page.written.store(launch, std::memory_order_release);
  return noted;
}

void StrictBoard::wait_to_call(const Signature* collective) {
  note_waiting_to_call(board_.page(rank_), collective == nullptr ? Signature{} : *collective);
  if (collective != nullptr) collectives_ = collective->sequence;
}

void StrictBoard::leave() { board_.page(rank_).leaving.store(1, std::memory_order_release); }

bool StrictBoard::awaits(int peer, const Signature& collective, const std::vector<Unmatched>& messages) const {
  if (peer == rank_) return false;
  if (collective.sequence > 0) return !has_come_to(board_.page(peer), collective.sequence);
  return std::any_of(messages.begin(), messages.end(), [&](const Unmatched& message) {
    return message.work.peer == peer && compares(peer) && !is_there(message);
  });
}

const MessageLog& StrictBoard::other_end(const MessageWork& message) const {
  return message.is_send() ? board_.received(message.peer, rank_) : board_.sent(message.peer, rank_);
}

bool StrictBoard::is_there(const Unmatched& message) const { return other_end(message.work).last() >= message.number; }

/// Whether there is nothing to wait for: the other end is there, or nobody will know. Throws Error if it differs.
bool StrictBoard::matched(const Unmatched& message) const {
  const int peer = message.work.peer;
  if (!compares(peer)) return true;
  if (!is_there(message)) return false;
  const auto note = other_end(message.work).find(message.number);
  if (!note || (note->bytes == message.work.bytes && note->type == message.work.stated)) return true;
  const MessageSignature other{message.number, note->bytes, note->type};
  fail(ncclInvalidUsage, "{} (NITINOL_CHECK=strict)",
       mismatch_sentence(rank_, message.message().text(), describe(peer), other.text(!message.work.is_send(), rank_)));
}

/// The peer leaves, or waits on the host for this rank to come to a collective.
void StrictBoard::fail_if_never(const Unmatched& message) const {
  const CallPage& page = board_.page(message.work.peer);
  // In this order: what the peer has written down before is seen by matched().
  const bool leaves = has_left(message.work.peer);
  const Signature next = waits_to_call(page);
  const bool waits = next.sequence > collectives_;
  if ((!leaves && !waits) || matched(message)) return;
  fail(ncclInvalidUsage, "{} (NITINOL_CHECK=strict)",
       message_sentence(rank_, message.message().text(), describe(message.work.peer),
                        leaves ? reason_leaving() : reason_next(next, rank_)));
}

void StrictBoard::look_for_circle() {
  if (!circles_.is_quiet(board_, Clock::now())) return;
  const auto circle = find_circle(board_, 0);
  if (circle) fail(ncclInvalidUsage, "{} (NITINOL_CHECK=strict)", circle_sentence(board_, peers_, *circle));
}

void StrictBoard::wait(std::vector<Unmatched> messages, const Check& check) {
  const auto begin = Clock::now();
  Clock::duration sleep = kFirstSleep;
  while (true) {
    std::erase_if(messages, [this](const Unmatched& message) { return matched(message); });
    if (messages.empty()) return;
    check(messages.front(), std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin));
    for (const Unmatched& message : messages) fail_if_never(message);
    look_for_circle();
    std::this_thread::sleep_for(sleep);
    sleep = std::min<Clock::duration>(2 * sleep, kLongestSleep);
  }
}

}  // namespace nitinol
