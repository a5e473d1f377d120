// In which of its launches a rank waits, and for whom: from the call board and from how far its GPU has come.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "executor/call_board.h"
#include "executor/call_circles.h"
#include "model/peer.h"

namespace nitinol {

/// How many of a rank's launches are through, no less than are; nothing if it is not known.
using Through = std::function<std::optional<uint64_t>()>;

/// The launch that a rank which has issued nothing for a while is in, or cannot begin. Of one thread.
class PresentLaunch {
 public:
  using Clock = std::chrono::steady_clock;

  /// `unreceived`: messages larger than this cannot be sent before somebody receives them.
  PresentLaunch(const CallBoard& board, int rank, size_t unreceived)
      : board_(board), rank_(rank), unreceived_(unreceived) {}

  const CallBoard& board() const { return board_; }
  int rank() const { return rank_; }

  /// To be called now and then; `through` only once the rank has been quiet for a quarter of a second.
  void look(const Through& through, Clock::time_point now);
  /// 0: none, it is not known, or graphs may be in it as well.
  uint64_t number() const { return number_; }
  /// What it waits for, whatever the peers have done of that.
  const std::vector<Need>& needs() const { return needs_; }
  /// "AllReduce number 5 (...)", or "a group of sends and receives".
  std::string text() const;

 private:
  uint64_t find(const Through& through, Clock::time_point now);

  const CallBoard& board_;
  int rank_;
  size_t unreceived_;
  std::optional<uint64_t> issued_;
  bool all_through_ = false;
  Clock::time_point quiet_since_{};
  uint64_t number_ = 0;
  uint64_t collective_waits_ = 0;  ///< how many its rank had noted when the needs were found
  std::vector<Need> needs_;
};

/// Finds out that a rank waits for one that carries out nothing any more: revoked, aborted or failed. Such a one may
/// say itself why, so it is given a second.
class StoppedPeers {
 public:
  /// A sentence once there is one.
  std::optional<std::string> look(const PresentLaunch& present, const std::vector<Peer>& peers,
                                  PresentLaunch::Clock::time_point now);

 private:
  std::vector<std::optional<PresentLaunch::Clock::time_point>> since_;  ///< by rank: when it was first seen to have
};

}  // namespace nitinol
