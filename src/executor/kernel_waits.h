// For whom the ranks' kernels wait, and in what, as they tell themselves: the only word of what runs where graphs are
// launched, which hosts do not see. A kernel tells it once it has waited for some milliseconds; so it costs nothing
// while calls flow. Only waits of a fifth of a second without a break count, so those of several ranks are
// simultaneous. Each rank's looking thread writes on the call board what its kernels tell.
//
// What follows from it, however ranks run and whatever else their GPUs are busy with:
// - Who waits for a rank in a collective has come at least as far as that rank. So ranks that wait for each other, in
//   a circle, are in the same collective. There they may, as what one waits for from the other may depend on a third
//   that is late; in different ones they wait for ever.
// - Who waits in sends and receives for a rank that is in a collective waits for what that comes to later.
// - Between ranks that all are in sends and receives: who waits for data of a rank whose launch sends it none, waits
//   for a later launch of it. Likewise who waits for a rank to take something whose launch takes nothing from it.
// - Where the launch does, it depends on whether both launches stand: all that they do is done, or waits for a rank
//   itself. Then who waits for something of the other waits for what is on its way, and comes within moments, or for a
//   later launch. A launch does not stand while a GPU is too busy to run all of a kernel, or the system fetches memory:
//   so what waits in it may be in want of a part of its own, for which the other waits in turn. Kernels mark what they
//   do (standing.h), and who waits tells whether its launch stands, by protocol: launches by several may run beside
//   each other. (If there are several by one protocol, which stand in line, none of them has a name: a rank may wait in
//   the first for what comes to the others, and these for a third rank.)
//   Where a launch does not stand, ranks are given some seconds.
// - Of launches of several collectives it is not known in which a rank waits: they prove something only if they have
//   none in common. What was launched before anybody had captured anything has no name, and proves nothing.
// - Whatever ranks are in, they stand still if all of them have waited for half a minute and none waits for any other
//   rank: calls before that differed may have left something in their way.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/call_board.h"
#include "executor/call_words.h"
#include "executor/rank_set.h"
#include "model/peer.h"
#include "model/types.h"
#include "nccl.h"

namespace nitinol {

/// In what one rank's kernels wait, and for whom. For nobody: they do not wait.
struct KernelWait {
  std::optional<Signature> collective{};  ///< without a number; nothing: messages
  bool among_several = false;             ///< it is one of those of the launch
  bool unknown = false;                   ///< it is not known in what
  bool for_long = false;                  ///< each wait has lasted for half a minute, without a break
  uint64_t works = 0;                     ///< a bit for each of those, of its tag
  RankSet for_data{};                     ///< until they send something
  RankSet for_room{};                     ///< until they take something
  RankSet sends_to{};                     ///< messages: to whom the launch sends any, as far as is known
  RankSet receives_from{};                ///< and from whom it receives any
  /// Messages by one protocol: for whom of those they wait.
  struct ByProtocol {
    RankSet for_data{};
    RankSet for_room{};
    /// Whether whatever the rank does in this launch by this protocol is done, or waits for a rank.
    bool stands = false;
    friend bool operator==(const ByProtocol&, const ByProtocol&) = default;

    bool is_for(int rank) const { return for_data.has(rank) || for_room.has(rank); }
  };
  std::array<ByProtocol, kProtocols> messages{};
  friend bool operator==(const KernelWait&, const KernelWait&) = default;

  bool is_for(int rank) const { return for_data.has(rank) || for_room.has(rank); }
  bool any() const { return for_data.any() || for_room.any(); }
  /// "AllReduce (count 100, type float32, op sum)", "a group of sends and receives", or "an operation".
  std::string text() const;
};

/// By the page's rank alone, each time it has looked.
void write_kernel_wait(CallPage& page, const KernelWait& wait);

/// What a rank wrote last. If it is found again with more looks, it has waited so all the time.
struct SeenWait {
  uint64_t version = 0;
  uint64_t looks = 0;
  KernelWait wait{};
};
SeenWait read_kernel_wait(const CallPage& page);

/// What one rank concludes. Of one thread.
class KernelWaits {
 public:
  KernelWaits(const CallBoard& board, const std::vector<Peer>& peers, int rank)
      : board_(board), peers_(peers), rank_(rank) {}

  struct Finding {
    ncclResult_t code;
    std::string sentence;
  };
  /// Once it is certain that what this rank waits for never comes. To be called every few hundredths of a second.
  std::optional<Finding> look();

 private:
  using Waits = std::vector<SeenWait>;  // by rank
  /// Is true once all its ranks have been seen to wait on.
  struct Suspicion {
    Finding finding;
    std::vector<std::pair<int, SeenWait>> ranks{};
    uint64_t looks = 0;  ///< so many more they must have looked

    bool is_same_as(const Suspicion& other) const;
    bool is_confirmed_by(const Suspicion& later) const;
  };
  std::optional<Suspicion> suspect(const Waits& waits) const;
  std::optional<Suspicion> in_vain(const Waits& waits) const;
  std::optional<Suspicion> circle(const Waits& certain) const;
  std::optional<Suspicion> slow_circle(const Waits& waits) const;
  std::optional<Suspicion> standstill(const Waits& waits) const;
  Suspicion told_of(const std::vector<int>& members, const Waits& waits, uint64_t looks) const;
  std::string sentence_for(const std::vector<int>& members, const Waits& waits) const;
  const KernelWait& mine(const Waits& waits) const { return waits[static_cast<size_t>(rank_)].wait; }
  std::string describe(int rank) const { return describe_rank(rank, peers_[static_cast<size_t>(rank)]); }

  const CallBoard& board_;
  const std::vector<Peer>& peers_;
  const int rank_;
  std::optional<Suspicion> suspicion_;
};

}  // namespace nitinol
