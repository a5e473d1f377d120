#include "executor/call_circles.h"

#include <algorithm>
#include <limits>

namespace nitinol {
namespace {

constexpr uint64_t kNotIssued = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kPassedAll = kNotIssued - 1;

/// A launch ends only after one of another rank has begun.
struct Wait {
  uint64_t launch = 0;
  int peer = 0;
  uint64_t for_launch = 0;  ///< of the peer
  Waiting waiting = Waiting::kReceive;
  uint64_t collective = 0;
};

/// One rank's way through its launches.
struct Path {
  std::vector<Wait> waits;  ///< by launch
  size_t next = 0;          ///< the first that may hold it up
  uint64_t at() const { return next < waits.size() ? waits[next].launch : kPassedAll; }
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

/// Waits of those who have issued `mine` for whoever issues `theirs`, which match one by one. `like`: for whom, and
/// how.
void add_waits(const MessageLog& mine, const MessageLog& theirs, const Wait& like, size_t more_than, Path& path) {
  const Numbers kept = kept_in(mine);
  for (uint64_t number = kept.first; number <= kept.last; ++number) {
    const auto here = mine.find(number);
    if (!here || here->bytes <= more_than) continue;
    const auto there = theirs.find(number);
    if (there) path.waits.push_back({here->launch, like.peer, there->launch, like.waiting});
    if (number > theirs.last()) path.waits.push_back({here->launch, like.peer, kNotIssued, like.waiting});
  }
}

void add_collectives(const CallBoard& board, int rank, Path& path) {
  const auto& mine = board.page(rank).calls;
  const Numbers kept = kept_in(mine);
  for (uint64_t number = kept.first; number <= kept.last; ++number) {
    const auto call = mine.find(number);
    const auto launch = mine.launch_of(number);
    if (!call || !launch) continue;
    for (int peer = 0; peer < board.ranks(); ++peer) {
      if (!call->needs(rank, peer)) continue;
      const auto& theirs = board.page(peer).calls;
      const auto there = theirs.launch_of(number);
      if (!there && number <= theirs.last()) continue;
      path.waits.push_back({*launch, peer, there.value_or(kNotIssued), Waiting::kCollective, number});
    }
  }
}

Path path_of(const CallBoard& board, int rank, size_t unreceived) {
  Path path;
  for (int peer = 0; peer < board.ranks(); ++peer) {
    if (peer == rank) continue;
    add_waits(board.received(rank, peer), board.sent(peer, rank), {.peer = peer}, 0, path);
    const Wait to_send{.peer = peer, .waiting = Waiting::kSend};
    add_waits(board.sent(rank, peer), board.received(peer, rank), to_send, unreceived, path);
  }
  add_collectives(board, rank, path);
  std::stable_sort(path.waits.begin(), path.waits.end(),
                   [](const Wait& a, const Wait& b) { return a.launch < b.launch; });
  return path;
}

bool over(const Wait& wait, const std::vector<Path>& paths) {
  return wait.for_launch <= paths[static_cast<size_t>(wait.peer)].at();
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
    const Wait& wait = path.waits[path.next];
    trail.push_back({rank, wait.waiting, wait.collective});
    rank = wait.peer;
  }
}

}  // namespace

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
