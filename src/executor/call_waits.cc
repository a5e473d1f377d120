#include "executor/call_waits.h"

#include <algorithm>
#include <utility>

#include "executor/call_words.h"

namespace nitinol {
namespace {

constexpr std::chrono::milliseconds kQuietFor{250};
constexpr std::chrono::milliseconds kPatienceWithOtherReports{1000};

}  // namespace

void PresentLaunch::look(const Through& through, Clock::time_point now) {
  const uint64_t number = find(through, now);
  const uint64_t collective_waits = board_.page(rank_).collective_waits.last();
  const bool same_waits = std::exchange(collective_waits_, collective_waits) == collective_waits;
  if (std::exchange(number_, number) == number && same_waits) return;
  needs_.clear();
  if (number == 0) return;
  needs_ = needs_of(board_, rank_, unreceived_);
  std::erase_if(needs_, [number](const Need& need) { return need.launch != number; });
}

uint64_t PresentLaunch::find(const Through& through, Clock::time_point now) {
  const CallPage& page = board_.page(rank_);
  const uint64_t written = page.written.load(std::memory_order_acquire);
  const uint64_t issued = page.launches.load(std::memory_order_acquire);
  if (std::exchange(issued_, issued) != issued) {
    quiet_since_ = now;
    all_through_ = false;
  }
  if (!through || all_through_ || issued == 0 || written != issued || now - quiet_since_ < kQuietFor) return 0;
  if (anything_captured(board_)) return 0;
  const auto ended = through();
  all_through_ = ended && *ended >= issued;
  return ended && !all_through_ ? *ended + 1 : 0;
}

std::string PresentLaunch::text() const {
  const auto collective = collective_of_launch(board_.page(rank_), number_);
  return collective ? collective->text() : "a group of sends and receives";
}

std::optional<std::string> StoppedPeers::look(const PresentLaunch& present, const std::vector<Peer>& peers,
                                              PresentLaunch::Clock::time_point now) {
  const CallBoard& board = present.board();
  since_.resize(peers.size());
  for (const Need& need : present.needs()) {
    const CallPage& page = board.page(need.peer);
    if (page.stopped.load(std::memory_order_acquire) == 0) continue;
    const uint64_t through = page.through.load(std::memory_order_acquire);
    const auto launch = launch_for(board, present.rank(), need);
    // What it has not even issued never comes, however far it was.
    if (!launch || (*launch != kNotIssued && *launch <= through)) continue;
    auto& since = since_[static_cast<size_t>(need.peer)];
    if (!since) since = now;
    if (now - *since < kPatienceWithOtherReports) continue;
    const std::string who = describe_rank(need.peer, peers[static_cast<size_t>(need.peer)]);
    return stopped_sentence(present.rank(), present.text(), who);
  }
  return std::nullopt;
}

}  // namespace nitinol
