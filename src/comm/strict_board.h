// NITINOL_CHECK=strict: sends and receives are compared between their two ends before they are put into streams, on a
// call board of the communicator that is there for nothing else.
//
// A rank writes down what a group sends and receives, and waits on the host until the other ends have written down
// theirs. So what stands on the board of a rank that waits stays as it is until it has waited; whatever keeps those for
// whom it waits from coming is certain, if they too wait for something that comes only after it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/process_state.h"
#include "comm/strict_lookout.h"
#include "executor/call_board.h"
#include "executor/call_circles.h"
#include "executor/executor.h"
#include "model/peer.h"

namespace nitinol {

class StrictBoard {
 public:
  /// Rank 0 makes the memory that all share, and offers it until the exchange ends; the others fetch it once it does.
  static SharedMemory make(HandleExchange& handles, int ranks);
  static SharedMemory fetch(HandleExchange& handles, int ranks);

  StrictBoard(SharedMemory memory, std::vector<Peer> peers, int rank);
  ~StrictBoard();
  StrictBoard(const StrictBoard&) = delete;
  StrictBoard& operator=(const StrictBoard&) = delete;

  /// A message that is to find its other end.
  struct Unmatched {
    MessageWork work;
    uint64_t number = 0;
    PeerMessage message() const { return {work.is_send(), work.peer, {number, work.bytes, work.stated}}; }
  };
  /// Writes a group's messages down, before its collectives are compared. Those that are captured into graphs are not
  /// compared, and then none of this rank are any more: nobody knows when graphs run.
  std::vector<Unmatched> note(const std::vector<MessageWork>& messages, bool captured);
  /// The rank waits on the host for all others to come to the collective; null: it has come, or failed.
  void wait_to_call(const Signature* collective);
  /// It calls nothing any more.
  void leave();

  /// Waits for the other ends. Throws Error(ncclInvalidUsage) with both ends' calls, or why one never comes. `check` is
  /// asked all the while: it is told for which rank and message this one waits, and since when, and throws to give up.
  using Check = std::function<void(const Unmatched& message, std::chrono::milliseconds waited)>;
  void wait(std::vector<Unmatched> messages, const Check& check);

  /// Whether the rank has still to come to the collective, or, if that has no number, to the other end of a message.
  bool awaits(int peer, const Signature& collective, const std::vector<Unmatched>& messages) const;
  /// Whether it calls nothing any more. To be asked before awaits().
  bool has_left(int peer) const { return board_.page(peer).leaving.load(std::memory_order_acquire) != 0; }
  const std::shared_ptr<StrictLookout>& lookout() const { return lookout_; }
  /// What keeps a rank from its next call, as its process tells.
  const SharedHolder& holder(int rank) const { return board_.page(rank).holder; }
  /// Tells that of all ranks of this process but some. Any thread.
  static void hold_up(const void* teller, const HeldProgram& held, std::span<const StrictBoard* const> but);
  /// Takes back what the same one has told.
  static void let_go(const void* teller);

  std::string describe(int peer) const;
  ProcessState process_of(int peer) const;

 private:
  const MessageLog& other_end(const MessageWork& message) const;
  bool is_there(const Unmatched& message) const;
  bool matched(const Unmatched& message) const;
  void fail_if_never(const Unmatched& message) const;
  void look_for_circle();
  bool compares(int rank) const { return board_.page(rank).captures.load(std::memory_order_acquire) == 0; }

  const std::shared_ptr<StrictLookout> lookout_ = StrictLookout::of_process();
  const CallBoard board_;
  const std::vector<Peer> peers_;
  const int rank_;
  const void* teller_ = nullptr;  ///< of what keeps this rank from its next call; under the registry's lock
  uint64_t collectives_ = 0;      ///< that all have come to
  CircleMoments circles_;
};

}  // namespace nitinol
