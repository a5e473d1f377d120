#include "executor/kernel_waits.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "executor/call_circles.h"

namespace nitinol {
namespace {

/// Looks are a twentieth of a second apart.
constexpr uint64_t kLooksToBeSure = 3;
/// Longer than GPUs are likely to be too busy for all of a kernel.
constexpr uint64_t kLooksAtMessages = 100;
/// Whoever has stopped may say itself why.
constexpr uint64_t kLooksForOtherReports = 20;

/// On the call board: in what a rank waits.
enum Kind : uint64_t { kMessages, kCollective, kSeveral, kUnknown };
/// Beside it.
constexpr uint64_t kForLong = 1 << 8;
constexpr uint64_t kStands = 1 << 9;  ///< by the first protocol; the next bits: by the others
constexpr uint64_t kKinds = kForLong - 1;
/// Where a wait's messages by the first protocol stand, and how many words those by each take.
constexpr size_t kMessagesAt = 12;
constexpr size_t kWordsOfMessages = 4;
static_assert(std::tuple_size_v<KernelWaitLog::Words> == kMessagesAt + kProtocols * kWordsOfMessages);

Kind kind_of(const KernelWait& wait) {
  if (wait.unknown) return kUnknown;
  return !wait.collective ? kMessages : wait.among_several ? kSeveral : kCollective;
}

/// Follows waits from a rank; by rank, who was first found to wait for it: -1 if nobody was.
std::vector<int> reached_from(int start, const std::vector<SeenWait>& waits) {
  std::vector<int> by(waits.size(), -1);
  std::vector<int> next = {start};
  for (size_t i = 0; i < next.size(); ++i) {
    for (int rank = 0; rank < static_cast<int>(waits.size()); ++rank) {
      if (!waits[static_cast<size_t>(next[i])].wait.is_for(rank) || by[static_cast<size_t>(rank)] >= 0) continue;
      by[static_cast<size_t>(rank)] = next[i];
      if (rank != start) next.push_back(rank);
    }
  }
  return by;
}

/// The shortest circle through a rank, beginning with it; empty if there is none.
std::vector<int> circle_through(int rank, const std::vector<SeenWait>& waits) {
  const std::vector<int> by = reached_from(rank, waits);
  std::vector<int> circle;
  for (int at = by[static_cast<size_t>(rank)]; at >= 0; at = by[static_cast<size_t>(at)]) {
    circle.push_back(at);
    if (at == rank) break;
  }
  std::reverse(circle.begin(), circle.end());
  return circle;
}

/// All that wait for each other with the rank, in circles: it reaches them, and they it.
std::vector<int> in_circles_with(int rank, const std::vector<SeenWait>& waits) {
  const std::vector<int> by = reached_from(rank, waits);
  std::vector<int> members;
  for (int other = 0; other < static_cast<int>(waits.size()); ++other) {
    if (by[static_cast<size_t>(other)] < 0) continue;
    if (reached_from(other, waits)[static_cast<size_t>(rank)] >= 0) members.push_back(other);
  }
  return members;
}

/// The same of one in messages that waits for another in messages.
bool is_for_later_message(const KernelWait& mine, int me, const KernelWait& theirs, int other) {
  if (mine.for_data.has(other) && !theirs.sends_to.has(me)) return true;
  if (mine.for_room.has(other) && !theirs.receives_from.has(me)) return true;
  for (size_t i = 0; i < mine.messages.size(); ++i) {
    if (mine.messages[i].stands && theirs.messages[i].stands && mine.messages[i].is_for(other)) return true;
  }
  return false;
}

/// Of rank `me`, which waits for the rank `other`, or does not: whether that comes to it only after what it is in.
bool proves_something(const KernelWait& mine, int me, const KernelWait& theirs, int other) {
  if (mine.unknown || theirs.unknown) return false;
  if (!mine.collective && !theirs.collective) return is_for_later_message(mine, me, theirs, other);
  const bool several = mine.among_several || theirs.among_several;
  return !several || !mine.collective || !theirs.collective || (mine.works & theirs.works) == 0;
}

/// Of the waits, those that prove something.
std::vector<SeenWait> certain_among(const std::vector<SeenWait>& waits) {
  std::vector<SeenWait> certain = waits;
  for (SeenWait& from : certain) {
    for (int rank = 0; rank < static_cast<int>(waits.size()); ++rank) {
      const KernelWait& other = waits[static_cast<size_t>(rank)].wait;
      if (proves_something(from.wait, static_cast<int>(&from - certain.data()), other, rank)) continue;
      from.wait.for_data.remove(rank);
      from.wait.for_room.remove(rank);
    }
  }
  return certain;
}

}  // namespace

std::string KernelWait::text() const {
  if (unknown) return "an operation";
  return collective ? collective->text() : "a group of sends and receives";
}

void write_kernel_wait(CallPage& page, const KernelWait& wait) {
  if (wait != read_kernel_wait(page).wait) {
    const Signature call = wait.collective.value_or(Signature{});
    const uint64_t kind = kind_of(wait);
    KernelWaitLog::Words words = {kind | (wait.for_long ? kForLong : 0),
                                  call.count,
                                  call.call,
                                  wait.works,
                                  wait.for_data.bits[0],
                                  wait.for_data.bits[1],
                                  wait.for_room.bits[0],
                                  wait.for_room.bits[1],
                                  wait.sends_to.bits[0],
                                  wait.sends_to.bits[1],
                                  wait.receives_from.bits[0],
                                  wait.receives_from.bits[1]};
    for (size_t i = 0; i < wait.messages.size(); ++i) {
      const KernelWait::ByProtocol& messages = wait.messages[i];
      if (messages.stands) words[0] |= kStands << i;
      const size_t at = kMessagesAt + i * kWordsOfMessages;
      std::copy(messages.for_data.bits.begin(), messages.for_data.bits.end(), words.begin() + at);
      std::copy(messages.for_room.bits.begin(), messages.for_room.bits.end(), words.begin() + at + 2);
    }
    page.kernel_wait.add(page.kernel_wait.last() + 1, words);
  }
  page.kernel_looks.fetch_add(1, std::memory_order_release);
}

SeenWait read_kernel_wait(const CallPage& page) {
  SeenWait seen;
  seen.looks = page.kernel_looks.load(std::memory_order_acquire);  // first: what is seen is not older
  seen.version = page.kernel_wait.last();
  const auto words = page.kernel_wait.find(seen.version);
  if (!words) return seen;
  const uint64_t kind = (*words)[0] & kKinds;
  seen.wait.unknown = kind == kUnknown;
  if (kind == kCollective || kind == kSeveral) seen.wait.collective = Signature{0, (*words)[1], (*words)[2]};
  seen.wait.among_several = kind == kSeveral;
  seen.wait.for_long = ((*words)[0] & kForLong) != 0;
  seen.wait.works = (*words)[3];
  seen.wait.for_data = {{(*words)[4], (*words)[5]}};
  seen.wait.for_room = {{(*words)[6], (*words)[7]}};
  seen.wait.sends_to = {{(*words)[8], (*words)[9]}};
  seen.wait.receives_from = {{(*words)[10], (*words)[11]}};
  for (size_t i = 0; i < seen.wait.messages.size(); ++i) {
    const size_t at = kMessagesAt + i * kWordsOfMessages;
    seen.wait.messages[i] = {.for_data = {{(*words)[at], (*words)[at + 1]}},
                             .for_room = {{(*words)[at + 2], (*words)[at + 3]}},
                             .stands = ((*words)[0] & kStands << i) != 0};
  }
  return seen;
}

bool KernelWaits::Suspicion::is_same_as(const Suspicion& other) const {
  return looks == other.looks && std::equal(ranks.begin(), ranks.end(), other.ranks.begin(), other.ranks.end(),
                                            [](const auto& a, const auto& b) {
                                              return a.first == b.first && a.second.version == b.second.version;
                                            });
}

bool KernelWaits::Suspicion::is_confirmed_by(const Suspicion& later) const {
  return std::equal(
      ranks.begin(), ranks.end(), later.ranks.begin(), later.ranks.end(),
      [this](const auto& before, const auto& after) { return after.second.looks >= before.second.looks + looks; });
}

std::optional<KernelWaits::Finding> KernelWaits::look() {
  if (!anything_captured(board_)) return std::nullopt;
  Waits waits;
  for (int rank = 0; rank < board_.ranks(); ++rank) waits.push_back(read_kernel_wait(board_.page(rank)));
  std::optional<Suspicion> found = mine(waits).any() ? suspect(waits) : std::nullopt;
  if (found && suspicion_ && found->is_same_as(*suspicion_)) {
    return suspicion_->is_confirmed_by(*found) ? std::optional(found->finding) : std::nullopt;
  }
  suspicion_ = std::move(found);
  return std::nullopt;
}

std::optional<KernelWaits::Suspicion> KernelWaits::suspect(const Waits& waits) const {
  auto found = circle(certain_among(waits));
  if (!found) found = in_vain(waits);
  if (!found) found = slow_circle(waits);
  return found ? found : standstill(waits);
}

/// Some rank for which this one waits does nothing any more.
std::optional<KernelWaits::Suspicion> KernelWaits::in_vain(const Waits& waits) const {
  const SeenWait& seen = waits[static_cast<size_t>(rank_)];
  const std::string call = seen.wait.text();
  // Who has left too waits in a graph that outlives the communicator, as others' launches of it do.
  const bool leaves = board_.page(rank_).leaving.load(std::memory_order_acquire) != 0;
  for (int peer = 0; peer < board_.ranks(); ++peer) {
    if (!seen.wait.is_for(peer)) continue;
    const CallPage& page = board_.page(peer);
    if (page.stopped.load(std::memory_order_acquire) != 0) {
      return Suspicion{
          {ncclRemoteError, stopped_sentence(rank_, call, describe(peer))}, {{rank_, seen}}, kLooksForOtherReports};
    }
    if (page.leaving.load(std::memory_order_acquire) != 0 && !leaves) {
      return Suspicion{
          {ncclInvalidUsage, leaver_sentence(rank_, call, describe(peer))}, {{rank_, seen}}, kLooksToBeSure};
    }
  }
  return std::nullopt;
}

std::optional<KernelWaits::Suspicion> KernelWaits::circle(const Waits& certain) const {
  const std::vector<int> members = in_circles_with(rank_, certain);
  const auto is_where_this_is = [&](int rank) {
    return certain[static_cast<size_t>(rank)].wait.collective == mine(certain).collective;
  };
  const bool all_in_one_collective =
      mine(certain).collective && std::all_of(members.begin(), members.end(), is_where_this_is);
  if (members.empty() || all_in_one_collective) return std::nullopt;
  return told_of(members, certain, kLooksToBeSure);
}

std::optional<KernelWaits::Suspicion> KernelWaits::slow_circle(const Waits& waits) const {
  Waits messages = waits;
  for (SeenWait& each : messages) {
    if (each.wait.collective || each.wait.unknown) each.wait = {};
  }
  const std::vector<int> members = in_circles_with(rank_, messages);
  return members.empty() ? std::nullopt : std::optional(told_of(members, messages, kLooksAtMessages));
}

/// All ranks on which this one depends have waited for long, and it is among them.
std::optional<KernelWaits::Suspicion> KernelWaits::standstill(const Waits& waits) const {
  const std::vector<int> by = reached_from(rank_, waits);
  std::vector<int> members;
  for (int rank = 0; rank < static_cast<int>(waits.size()); ++rank) {
    if (by[static_cast<size_t>(rank)] < 0) continue;
    if (!waits[static_cast<size_t>(rank)].wait.for_long) return std::nullopt;
    members.push_back(rank);
  }
  const bool is_one_of_them = std::find(members.begin(), members.end(), rank_) != members.end();
  return is_one_of_them ? std::optional(told_of(members, waits, kLooksToBeSure)) : std::nullopt;
}

KernelWaits::Suspicion KernelWaits::told_of(const std::vector<int>& members, const Waits& waits, uint64_t looks) const {
  Suspicion found{{ncclInvalidUsage, sentence_for(members, waits)}, {}, looks};
  for (const int member : members) found.ranks.emplace_back(member, waits[static_cast<size_t>(member)]);
  return found;
}

/// Two different collectives say best what is wrong.
std::string KernelWaits::sentence_for(const std::vector<int>& members, const Waits& waits) const {
  const KernelWait& here = mine(waits);
  for (const int member : members) {
    const KernelWait& there = waits[static_cast<size_t>(member)].wait;
    if (!here.collective || !there.collective || here.collective == there.collective) continue;
    return mismatch_sentence(rank_, here.text(), describe(member), there.text());
  }
  std::vector<CircleStep> steps;
  for (const int rank : circle_through(rank_, waits)) {
    const KernelWait& wait = waits[static_cast<size_t>(rank)].wait;
    steps.push_back({describe(rank), Waiting::kCollective, wait.text()});
  }
  return circle_sentence(steps);
}

}  // namespace nitinol
