// Ranks that wait for each other in a circle, each in a call that ends only after one which another makes later: found
// from what ranks tell of themselves in their arenas once they have waited for a tenth of a second.
//
// A rank in a group of sends and receives waits for a peer's present call to end if that call is a collective, or a
// group in which the peer has no more to do with it. A rank in a collective waits for the present call of whoever has
// not begun the collective, and without whom it cannot end: from whom something must come, whatever the algorithm, or
// for whom it waits just now, to pass something on or to have room for what this rank sends. These waits stay until the
// call that is waited for has ended; so a circle of them stays, if all are true at one time. That is why it is looked
// at twice: what was said before the first look may have been out of date.
//
// A rank may also wait for one that is in the same collective and itself waits there, as in a ring. That stays as long
// as the other's wait does. So whom a rank in a collective waits for just now has to be in one and the same wait at
// both looks, too, if that is in a collective.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "executor/call_words.h"
#include "executor/cpu/arena.h"
#include "executor/label.h"

namespace nitinol::cpu {

class CircleSearch {
 public:
  CircleSearch(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  ~CircleSearch() { stop(); }
  CircleSearch(const CircleSearch&) = delete;
  CircleSearch& operator=(const CircleSearch&) = delete;

  /// Null if the rank was not reached.
  using Known = std::function<const Arena*(int)>;
  /// Reaches a rank's arena; null, or throws Error, if it cannot be had.
  using Reach = std::function<std::shared_ptr<Arena>(int)>;

  /// By the rank's operations, now and then while it waits in a group and has told so: a sentence once there is a
  /// circle. Ranks on the trail that are not known are reached on a thread of their own.
  std::optional<std::string> look(const Known& known, const Reach& reach);

  /// For whom the rank's present call waits and cannot end before theirs, with the labels that they tell: of calls on
  /// this communicator, or of such on others that hold them up. `ready`: whether something that it waits for has come.
  std::vector<Labels::Other> labels_of_others(const Known& known, const Reach& reach,
                                              const std::function<bool()>& ready);
  /// Of one whose label was told: in which call it is, or what holds it up.
  std::string reason_of(int peer, const Known& known) const;
  bool held_up_on_host(int peer, const Known& known) const;

  /// Any thread: nothing is reached afterwards.
  void stop();

 private:
  struct Call {
    enum class What : uint8_t { kNone, kMessages, kCollective };
    What what = What::kNone;
    uint64_t number = 0;
    uint64_t looks = 0;
    Signature collective{};
    bool same(const Call& other) const { return what == other.what && number == other.number; }
  };
  /// Rank `rank`, in `call`, waits for rank `peer`.
  struct Wait {
    int rank = 0;
    Call call;
    int peer = 0;
    Waiting waiting = Waiting::kReceive;
    bool by_looks = true;  ///< the rank looks now and then whether it has ended
    bool inside = false;   ///< the peer is in the same collective
    uint32_t told = 0;     ///< in a collective: which of its waits that is; 0: none that it tells just now
  };
  using Waits = std::vector<std::vector<Wait>>;  ///< of each rank

  const Arena* arena(int rank, const Known& known) const;
  static Call call_of(const Arena& arena);
  static uint32_t awaited_now(const Arena& mine, int peer);
  static bool needs(int rank, const Arena& mine, int peer);
  std::optional<Wait> wait_for(int rank, int peer, const Known& known) const;
  std::optional<Wait> wait_inside(int rank, int peer, const Known& known) const;
  bool stays(const Wait& wait, const Known& known) const;
  bool waits_for_next_call_of(int peer, const Known& known) const;
  Waits find_waits(const Known& known, bool& unknown) const;
  static bool may_follow(const Wait& wait, const std::vector<Wait>& trail);
  static std::vector<Wait> find_circle(const Waits& waits, int first);
  bool still_there(const Known& known) const;
  void note_looks(const Known& known);
  bool looked_again(const Known& known) const;
  static std::string text_of(const Wait& wait, const Arena& arena);
  std::string reason_messages(const Arena& arena) const;
  std::string sentence(const Known& known) const;
  void reach_all(const Known& known, const Reach& reach);

  int rank_;
  int ranks_;
  std::vector<Wait> circle_;  ///< as the first look found it

  std::mutex mutex_;  // guards the thread's beginning and end
  std::thread reaching_;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> reached_all_{false};
  bool reaches_ = false;
  std::vector<std::shared_ptr<Arena>> reached_;  ///< of the thread until it has reached all
};

}  // namespace nitinol::cpu
