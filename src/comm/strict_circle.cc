#include "comm/strict_circle.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/program_threads.h"
#include "base/registry.h"
#include "comm/communicator.h"
#include "diagnostics/ras/report.h"
#include "executor/call_words.h"

namespace nitinol {
namespace {

constexpr std::chrono::milliseconds kFirstLook{250};
constexpr std::chrono::seconds kLongWait{10};

/// Who is waited for, as a number: a member of the group, and a rank of its communicator.
constexpr int kMembersFrom = 16;
constexpr int kRanks = (1 << kMembersFrom) - 1;

}  // namespace

StrictCircle::StrictCircle(std::span<const Batch* const> batches) : begin_(std::chrono::steady_clock::now()) {
  for (const Batch* batch : batches) {
    const Communicator::Visit visit(*batch->communicator);
    members_.push_back({.communicator = batch->communicator, .board = batch->communicator->strict_board()});
  }
  lookout_ = members_.front().board->lookout();
  lookout_->add(*this);
}

StrictCircle::StrictCircle(Communicator& leaver) : begin_(std::chrono::steady_clock::now()) {
  members_.push_back(
      {.communicator = &leaver, .board = leaver.strict_board(), .leaves = true, .thread = static_cast<int>(gettid())});
  lookout_ = members_.front().board->lookout();
  lookout_->add(*this);
}

StrictCircle::~StrictCircle() {
  lookout_->remove(*this);
  if (!told_) return;
  StrictBoard::let_go(this);
  for (const Member& each : members_) each.communicator->note_wait(nullptr);
}

StrictCircle::Member& StrictCircle::member(const Communicator& communicator) {
  return *std::find_if(members_.begin(), members_.end(),
                       [&](const Member& each) { return each.communicator == &communicator; });
}

void StrictCircle::wait_for(const Communicator& communicator, const Signature& collective) {
  const std::lock_guard lock(mutex_);
  Member& self = member(communicator);
  self.thread = gettid();
  self.collective = collective;
}

void StrictCircle::wait_for(const Communicator& communicator, const std::vector<StrictBoard::Unmatched>& messages) {
  const std::lock_guard lock(mutex_);
  Member& self = member(communicator);
  self.thread = gettid();
  self.collective = {};
  self.messages = messages;
}

void StrictCircle::look() {
  const auto waited = std::chrono::steady_clock::now() - begin_;
  if (waited < kFirstLook) return;
  const std::lock_guard lock(mutex_);
  for (const Member& each : members_) fail_if_a_peer_has_left(each);
  if (waited >= kLongWait && !std::exchange(warned_, true)) warn();
  const std::vector<Labels::Other> others = labels_of_others();
  if (const auto other = labels_.came_back(others)) return fail_member(*other);
  tell(labels_.next(others));
}

void StrictCircle::fail_if_a_peer_has_left(const Member& member) {
  Communicator& communicator = *member.communicator;
  const StrictBoard& board = *member.board;
  for (int peer = 0; member.collective.sequence > 0 && peer < communicator.ranks(); ++peer) {
    if (!board.has_left(peer) || !board.awaits(peer, member.collective, {})) continue;
    const std::string mine = member.collective.text();
    communicator.fail_with(ncclInvalidUsage,
                           leaver_sentence(communicator.rank(), mine, board.describe(peer)) + " (NITINOL_CHECK=strict)",
                           true);
    return;
  }
}

bool StrictCircle::awaits(const Member& member, int peer) {
  const StrictBoard& board = *member.board;
  if (member.leaves) return peer != member.communicator->rank() && !board.has_left(peer);
  return board.awaits(peer, member.collective, member.messages);
}

/// Those who are waited for may be busy, or wait in turn: where programs have several threads nobody knows.
void StrictCircle::warn() {
  for (const Member& each : members_) {
    if (each.leaves) continue;  // that ends by itself
    Communicator& communicator = *each.communicator;
    const StrictBoard& board = *each.board;
    std::string late;
    for (int peer = 0; peer < communicator.ranks(); ++peer) {
      if (!awaits(each, peer)) continue;
      late += (late.empty() ? "" : "; ") + board.describe(peer) + ": " + words_for(board.process_of(peer));
    }
    if (late.empty()) continue;
    log_warn(
        "rank {}: {} of communicator {} have waited {} s to be compared with the calls of others, which have not made "
        "theirs (NITINOL_CHECK=strict): {}. If these wait in turn, as where communicators are used in different "
        "orders, only NITINOL_TIMEOUT ends that",
        communicator.rank(), what_waits(each), ras::text_of(communicator.identity()), kLongWait.count(), late);
  }
}

/// Whether all threads of the program compare the group's calls, and did so at the last look: what else the program is
/// to call waits for that.
bool StrictCircle::holds_program() {
  std::vector<int> waiting;
  for (const Member& each : members_) waiting.push_back(each.thread);
  std::sort(waiting.begin(), waiting.end());
  const std::vector<int> before = std::exchange(threads_, threads_of_program());
  return threads_ == waiting && before == waiting;
}

/// Of the ranks that are waited for, those whose programs are known to be held up.
std::vector<Labels::Other> StrictCircle::labels_of_others() const {
  std::vector<Labels::Other> others;
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& self = members_[i];
    const StrictBoard& board = *self.board;
    const int most = std::min(self.communicator->ranks(), kRanks);
    for (int peer = 0; peer < most; ++peer) {
      const SharedLabel& label = board.holder(peer).label;
      const auto seen = label.look();
      if (!seen || !awaits(self, peer) || !label.still(*seen)) continue;
      others.push_back({static_cast<int>(i) << kMembersFrom | peer, seen->label, true});
    }
  }
  return others;
}

void StrictCircle::fail_member(int other) {
  const Member& self = members_[static_cast<size_t>(other >> kMembersFrom)];
  const int peer = other & kRanks;
  Communicator& communicator = *self.communicator;
  StrictBoard& board = *self.board;
  communicator.fail_with(ncclInvalidUsage,
                         host_circle_sentence(communicator.rank(), what_waits(self), board.describe(peer),
                                              reason_on_host(board.holder(peer).holder())) +
                             " (NITINOL_CHECK=strict)",
                         true);
}

std::string StrictCircle::what_waits(const Member& member) {
  if (member.leaves) return name_of(HostCall::kLeave);
  if (member.collective.sequence > 0) return member.collective.text();
  return member.messages.empty() ? "sends and receives" : member.messages.front().message().text();
}

/// The ranks of the group itself are told of to executors only: what they have called is on the boards.
void StrictCircle::tell(uint64_t label) {
  const auto waits = [](const Member& each) {
    return each.leaves || each.collective.sequence > 0 || !each.messages.empty();
  };
  const auto found = std::find_if(members_.begin(), members_.end(), waits);
  const Member& first = found != members_.end() ? *found : members_.front();
  const HeldProgram held{label,
                         {.communicator = std::bit_cast<std::array<uint64_t, 2>>(first.communicator->identity()),
                          .rank = first.communicator->rank(),
                          .call = first.collective,
                          .message = first.messages.empty() ? PeerMessage{} : first.messages.front().message(),
                          .host_call = first.leaves ? HostCall::kLeave : HostCall::kNone}};
  told_ = holds_program();
  for (const Member& each : members_) each.communicator->note_wait(told_ ? &held : nullptr);
  if (!told_) return StrictBoard::let_go(this);
  std::vector<const StrictBoard*> of_group;
  for (const Member& each : members_) of_group.push_back(each.board.get());
  StrictBoard::hold_up(this, held, of_group);
}

}  // namespace nitinol
