// Ranks that wait for each other in a circle: each for a call that another makes only after one that never ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "executor/call_board.h"
#include "executor/call_words.h"
#include "model/peer.h"

namespace nitinol {

/// What a launch of a rank waits for, before it can end: the other end of a message, or a rank's part in a collective.
struct Need {
  uint64_t launch = 0;
  int peer = 0;
  Waiting waiting = Waiting::kReceive;
  uint64_t number = 0;  ///< of the message among those of the two, or of the collective
};
/// Of all launches that are still known, in their order. `unreceived`: messages larger than this cannot be sent before
/// somebody receives them.
std::vector<Need> needs_of(const CallBoard& board, int rank, size_t unreceived);

/// The launch of the peer in which is what rank `rank` needs: kNotIssued if there is none yet, and nothing if that is
/// too long ago.
std::optional<uint64_t> launch_for(const CallBoard& board, int rank, const Need& need);
inline constexpr uint64_t kNotIssued = std::numeric_limits<uint64_t>::max();

/// A rank that waits for another.
struct HeldUp {
  int rank = 0;
  Waiting waiting = Waiting::kReceive;
  uint64_t number = 0;  ///< of the collective, or of the message among those of the two
};

/// Ranks of which each waits for the next, and the last for the first; nothing if there are none, or calls came
/// meanwhile. Nothing is known of what waits for ranks that have captured calls, nor of what they wait for.
///
/// A launch can begin when all earlier ones of its rank have ended. It can end when, for all that it receives and for
/// all that it needs of others in a collective, or waits for there, the launch with the other end has begun.
/// What is not known to hold a launch up is taken to let it pass; so ranks that are found to be held up are.
std::optional<std::vector<HeldUp>> find_circle(const CallBoard& board, size_t unreceived);

/// The sentence about it.
std::string circle_sentence(const CallBoard& board, const std::vector<Peer>& peers, const std::vector<HeldUp>& circle);

/// When to look for a circle: once each time nobody has issued anything, nor waited in a collective for somebody new,
/// for half a second.
class CircleMoments {
 public:
  /// Whether it is such a moment, whatever was captured. To be asked every few hundredths of a second, `now`.
  bool is_quiet(const CallBoard& board, std::chrono::steady_clock::time_point now);
  /// The same, but not once anything was captured.
  bool may_be_found(const CallBoard& board, std::chrono::steady_clock::time_point now);

 private:
  // Since when nobody has issued anything, and whether there was a moment since.
  std::optional<uint64_t> launches_;
  uint64_t collective_waits_ = 0;
  std::chrono::steady_clock::time_point quiet_since_{};
  bool over_ = false;
};

/// Whether any rank has captured calls, so that nobody knows when they run.
bool anything_captured(const CallBoard& board);

/// How many launches all ranks together have issued; nothing while one is being written down.
std::optional<uint64_t> launches_on(const CallBoard& board);

}  // namespace nitinol
