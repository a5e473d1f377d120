// Compares what one rank has written on the call board with what the others have. Says something only if it is certain
// whatever else the ranks do, and however far they are apart.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/call_board.h"
#include "executor/call_circles.h"
#include "executor/call_words.h"
#include "model/peer.h"

namespace nitinol {

class CallCheck {
 public:
  /// `unreceived`: messages larger than this cannot be sent before somebody receives them.
  CallCheck(const CallBoard& board, const std::vector<Peer>& peers, int rank, size_t unreceived)
      : board_(board), peers_(peers), rank_(rank), unreceived_(unreceived) {}

  using Clock = std::chrono::steady_clock;

  /// A sentence once calls cannot match. To be called every few hundredths of a second, `now`; `idle`: whether all that
  /// this rank has issued is through, which is asked for only if something looks wrong.
  std::optional<std::string> look(const std::function<bool()>& idle, Clock::time_point now);

  /// What look() has found that holds nobody up, and may be right, as launches of graphs are not seen: told once.
  std::optional<std::string> take_warning() { return std::exchange(warning_, std::nullopt); }

  /// "rank 3 (host h, pid 17, device 2)".
  std::string describe(int peer) const;
  /// What the peer does; `answered`: whether what its page says of that is fresh.
  std::string doings_of(int peer, bool answered) const;
  /// The same without a look at its process.
  Doings look_at(int peer, bool answered) const;

  /// "Recv number 3 from rank 1 (count 100, type float32)": this rank's first receive whose other end the peer has not
  /// issued, else such a send; "" if there is none.
  std::string unmatched_message(int peer) const;

  /// What this rank and the peer have captured differently into graphs.
  std::optional<std::string> difference_in_graphs(int peer) const;

  /// Whether this rank and the others have issued the same number of collectives, and both ends of all messages that
  /// either has sent. Of ranks that have captured any it is not known, and taken for granted.
  bool calls_match() const;

  /// After all ranks have left: what two of them called differently, or one of them alone, and messages that nobody
  /// received.
  std::optional<std::string> difference_in_the_end() const;

 private:
  struct Finding {
    std::string sentence;
    /// Else it is one only if this rank gets no further: launches of graphs, which nobody sees, may account for it.
    bool certain = true;
    bool differs = false;  ///< collectives, so that results may be wrong even if nobody is held up
  };
  /// How far a peer has come.
  struct Standing {
    bool leaves = false;
    HostCall on_host = HostCall::kNone;  ///< in which it waits for this rank
    uint64_t begun = 0;                  ///< its last collective
    Signature waits_to_call;             ///< number 0: none
  };
  Standing standing_of(int peer) const;
  std::optional<Finding> find() const;
  std::optional<Finding> find_with(int peer) const;
  template <class Log>
  std::optional<std::string> different_call(int peer, const Log& mine, const Log& theirs) const;
  std::optional<std::string> different_announced(int peer) const;
  std::optional<std::string> different_message(int from, int to) const;
  std::optional<std::string> unreceived(int from, int to) const;
  std::optional<std::string> never(int peer, const Standing& theirs) const;
  std::optional<std::string> never(int peer, const Standing& theirs, const MessageLog::Note& message, uint64_t number,
                                   bool sends) const;
  std::string reason_why_never(int peer, const Standing& theirs, uint64_t after) const;
  std::optional<std::string> left_without(int peer, bool leaves) const;
  std::optional<std::string> different_on_host(int peer, HostCall call) const;
  std::optional<std::string> look_for_circle(const std::function<bool()>& idle, Clock::time_point now);
  bool stuck(const std::function<bool()>& idle, Clock::time_point now);

  const CallBoard& board_;
  const std::vector<Peer>& peers_;
  int rank_;
  size_t unreceived_;
  std::optional<Clock::time_point> without_progress_since_;
  uint64_t issued_then_ = 0;

  CircleMoments circles_;

  std::optional<std::string> warning_;
  bool warned_ = false;
};

}  // namespace nitinol
