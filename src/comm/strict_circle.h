// NITINOL_CHECK=strict: circles over several communicators. Calls are compared on the host, so a program of one thread
// that uses communicators in another order than its peers makes none of the calls for which they wait before they have
// made the one for which it waits.
//
// Labels go round as where streams stand still (executor/label.h): whoever compares the calls of a group takes a number
// and writes it on the strict boards of all other ranks of its process, if all threads of the program are in that
// group: those ranks call nothing before it has ended. Those who wait for such a rank to come pass the number on, and
// whoever gets its own waits for itself. The executor passes it on where operations wait for such a rank (note_wait),
// and tells of those for which the program's only thread waits (HeldProgram): so circles over streams are found, too.
// Whoever waits for others to leave a communicator calls nothing either.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/batch.h"
#include "comm/strict_board.h"
#include "comm/strict_lookout.h"
#include "executor/label.h"
#include "model/signature.h"

namespace nitinol {

/// While it lives the calls of a group are compared, each batch on a thread that says for what it waits; or others are
/// waited for that are to leave.
class StrictCircle {
 public:
  explicit StrictCircle(std::span<const Batch* const> batches);
  /// Or the calling thread waits for the other ranks to leave the communicator, too.
  explicit StrictCircle(Communicator& leaver);
  ~StrictCircle();
  StrictCircle(const StrictCircle&) = delete;
  StrictCircle& operator=(const StrictCircle&) = delete;

  /// By the thread that compares a batch: it waits for all ranks to come to the collective,
  void wait_for(const Communicator& communicator, const Signature& collective);
  /// or for the other ends of messages.
  void wait_for(const Communicator& communicator, const std::vector<StrictBoard::Unmatched>& messages);

  /// By the lookout, now and then.
  void look();

 private:
  struct Member {
    Communicator* communicator = nullptr;
    std::shared_ptr<StrictBoard> board{};  ///< the communicator may be aborted meanwhile, and gives up its own then
    Signature collective{};                ///< number 0: none
    std::vector<StrictBoard::Unmatched> messages{};
    bool leaves = false;  ///< it waits for others to leave, too
    int thread = 0;       ///< 0: it waits for nothing yet
  };
  Member& member(const Communicator& communicator);
  static bool awaits(const Member& member, int peer);
  static std::string what_waits(const Member& member);
  static void fail_if_a_peer_has_left(const Member& member);
  void warn();
  bool holds_program();
  std::vector<Labels::Other> labels_of_others() const;
  void fail_member(int other);
  void tell(uint64_t label);

  std::shared_ptr<StrictLookout> lookout_;
  const std::chrono::steady_clock::time_point begin_;
  std::mutex mutex_;  // of what follows
  std::vector<Member> members_;

  // Of the thread that looks.
  bool warned_ = false;
  Labels labels_;
  std::vector<int> threads_;  ///< of the program, as the last look found them
  bool told_ = false;         ///< that the program calls nothing meanwhile
};

}  // namespace nitinol
