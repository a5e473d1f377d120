#include "executor/call_circles.h"

#include <algorithm>
#include <utility>

#include "executor/collective_waits.h"

namespace nitinol {
namespace {

constexpr std::chrono::milliseconds kQuiet{500};
constexpr uint64_t kPassedAll = kNotIssued - 1;

/// A launch ends only after one of another rank has begun.
struct Wait {
  Need need;
  uint64_t for_launch = 0;  ///< of the peer
};

/// One rank's way through its launches.
struct Path {
  std::vector<Wait> waits;  ///< by launch
  size_t next = 0;          ///< the first that may hold it up
  uint64_t at() const { return next < waits.size() ? waits[next].need.launch : kPassedAll; }
};

/// The numbers that a log still keeps. A stranger's may claim any.
struct Numbers {
  uint64_t first = 1;
  uint64_t last = 0;
};
template <class Log>
Numbers kept_in(const Log& log) {
  const uint64_t last = std::min(log.last(), kPassedAll);
  return {last >= Log::kKept ? last - Log::kKept + 1 : 1, last};
}

void add_messages(const MessageLog& log, const Need& like, size_t more_than, std::vector<Need>& needs) {
  const Numbers kept = kept_in(log);
  for (uint64_t number = kept.first; number <= kept.last; ++number) {
    const auto message = log.find(number);
    if (message && message->bytes > more_than) needs.push_back({message->launch, like.peer, like.waiting, number});
  }
}

void add_collectives(const CallBoard& board, int rank, std::vector<Need>& needs) {
  const auto& calls = board.page(rank).calls;
  const CollectiveWaits waits = read_collective_waits(board.page(rank));
  const Numbers kept = kept_in(calls);
  for (uint64_t number = kept.first; number <= kept.last; ++number) {
    const auto call = calls.find(number);
    const auto launch = calls.launch_of(number);
    if (!call || !launch) continue;
    for (int peer = 0; peer < board.ranks(); ++peer) {
      if (!call->needs(rank, peer) && !waits.in(*launch, peer)) continue;
      needs.push_back({*launch, peer, Waiting::kCollective, number});
    }
  }
}

bool has_captured(const CallBoard& board, int rank) {
  return board.page(rank).captures.load(std::memory_order_acquire) != 0;
}

Path path_of(const CallBoard& board, int rank, size_t unreceived) {
  Path path;
  if (has_captured(board, rank)) return path;
  for (const Need& need : needs_of(board, rank, unreceived)) {
    if (has_captured(board, need.peer)) continue;
    if (const auto launch = launch_for(board, rank, need)) path.waits.push_back({need, *launch});
  }
  return path;
}

/// The launch of a message, or a collective, with the number.
template <class Log>
std::optional<uint64_t> launch_in(const Log& log, uint64_t number, std::optional<uint64_t> found) {
  if (found) return found;
  return number > log.last() ? std::optional(kNotIssued) : std::nullopt;
}

bool over(const Wait& wait, const std::vector<Path>& paths) {
  return wait.for_launch <= paths[static_cast<size_t>(wait.need.peer)].at();
}

/// Everybody goes as far as possible.
void run(std::vector<Path>& paths) {
  for (bool moved = true; moved;) {
    moved = false;
    for (Path& path : paths) {
      for (; path.next < path.waits.size() && over(path.waits[path.next], paths); ++path.next) moved = true;
    }
  }
}

/// Follows whom each waits for, until somebody comes up again.
std::optional<std::vector<HeldUp>> circle_from(int first, const std::vector<Path>& paths) {
  std::vector<HeldUp> trail;
  for (int rank = first;;) {
    const auto met = std::find_if(trail.begin(), trail.end(), [&](const HeldUp& other) { return other.rank == rank; });
    if (met != trail.end()) return std::vector<HeldUp>(met, trail.end());
    const Path& path = paths[static_cast<size_t>(rank)];
    if (path.at() == kPassedAll) return std::nullopt;  // may still issue what is waited for
    const Need& need = path.waits[path.next].need;
    trail.push_back({rank, need.waiting, need.number});
    rank = need.peer;
  }
}

/// "" if it is too long ago.
std::string call_of(const CallBoard& board, const HeldUp& waiting, int peer) {
  if (waiting.waiting == Waiting::kCollective) {
    const auto collective = board.page(waiting.rank).calls.find(waiting.number);
    return collective ? collective->text() : "";
  }
  const bool sends = waiting.waiting == Waiting::kSend;
  const auto note = (sends ? board.sent(waiting.rank, peer) : board.received(waiting.rank, peer)).find(waiting.number);
  return note ? MessageSignature{waiting.number, note->bytes, note->type}.text(sends, peer) : "";
}

}  // namespace

std::vector<Need> needs_of(const CallBoard& board, int rank, size_t unreceived) {
  std::vector<Need> needs;
  for (int peer = 0; peer < board.ranks(); ++peer) {
    if (peer == rank) continue;
    add_messages(board.received(rank, peer), {.peer = peer, .waiting = Waiting::kReceive}, 0, needs);
    add_messages(board.sent(rank, peer), {.peer = peer, .waiting = Waiting::kSend}, unreceived, needs);
  }
  add_collectives(board, rank, needs);
  std::stable_sort(needs.begin(), needs.end(), [](const Need& a, const Need& b) { return a.launch < b.launch; });
  return needs;
}

std::optional<uint64_t> launch_for(const CallBoard& board, int rank, const Need& need) {
  if (need.waiting == Waiting::kCollective) {
    const auto& calls = board.page(need.peer).calls;
    return launch_in(calls, need.number, calls.launch_of(need.number));
  }
  const bool receives = need.waiting == Waiting::kReceive;
  const MessageLog& log = receives ? board.sent(need.peer, rank) : board.received(need.peer, rank);
  const auto note = log.find(need.number);
  return launch_in(log, need.number, note ? std::optional(note->launch) : std::nullopt);
}

std::string circle_sentence(const CallBoard& board, const std::vector<Peer>& peers, const std::vector<HeldUp>& circle) {
  std::vector<CircleStep> steps;
  for (size_t i = 0; i < circle.size(); ++i) {
    const HeldUp& each = circle[i];
    const int peer = circle[(i + 1) % circle.size()].rank;
    steps.push_back(
        {describe_rank(each.rank, peers[static_cast<size_t>(each.rank)]), each.waiting, call_of(board, each, peer)});
  }
  return circle_sentence(steps);
}

bool CircleMoments::is_quiet(const CallBoard& board, std::chrono::steady_clock::time_point now) {
  const auto launches = launches_on(board);
  const uint64_t collective_waits = collective_waits_on(board);  // they may be what closes a circle
  const bool new_waits = collective_waits != std::exchange(collective_waits_, collective_waits);
  if (!launches || launches != std::exchange(launches_, launches) || new_waits) {
    quiet_since_ = now;
    over_ = false;
  }
  if (!launches || over_ || now - quiet_since_ < kQuiet) return false;
  over_ = true;
  return true;
}

bool CircleMoments::may_be_found(const CallBoard& board, std::chrono::steady_clock::time_point now) {
  return is_quiet(board, now) && !anything_captured(board);
}

bool anything_captured(const CallBoard& board) {
  for (int rank = 0; rank < board.ranks(); ++rank) {
    if (has_captured(board, rank)) return true;
  }
  return false;
}

std::optional<uint64_t> launches_on(const CallBoard& board) {
  uint64_t written = 0;
  uint64_t issued = 0;
  for (int rank = 0; rank < board.ranks(); ++rank) written += board.page(rank).written.load(std::memory_order_acquire);
  for (int rank = 0; rank < board.ranks(); ++rank) issued += board.page(rank).launches.load(std::memory_order_acquire);
  return written == issued ? std::optional(issued) : std::nullopt;
}

std::optional<std::vector<HeldUp>> find_circle(const CallBoard& board, size_t unreceived) {
  const auto launches = launches_on(board);
  if (!launches) return std::nullopt;
  std::vector<Path> paths;
  for (int rank = 0; rank < board.ranks(); ++rank) paths.push_back(path_of(board, rank, unreceived));
  run(paths);
  for (int rank = 0; rank < board.ranks(); ++rank) {
    auto circle = circle_from(rank, paths);
    if (circle) return launches_on(board) == launches ? circle : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace nitinol
