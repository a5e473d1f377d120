// Circles in which ranks of several communicators wait for each other, as their programs use them in different orders
// in their streams: found by labels (label.h) on the call boards. For GPUs, of which only the order of launches and how
// many are through are known.
//
// Each step of a circle follows from the order of launches alone, so it holds whatever has happened since somebody
// looked: a launch cannot end before those of its peers begin that have the other end of what is in it; these cannot
// before all earlier ones of their rank have ended, nor before what stands before them in their stream has.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/registry.h"
#include "executor/call_waits.h"
#include "executor/label.h"
#include "executor/stream_places.h"

namespace nitinol {

/// One rank's part in it. All of a process look on one thread.
class LongCircle {
 public:
  struct Self {
    std::array<uint64_t, 2> identity{};  ///< of the communicator
    const std::vector<Peer>& peers;
    const StreamPlaces& places;
  };
  LongCircle(const PresentLaunch& present, const Self& self);
  ~LongCircle();
  LongCircle(const LongCircle&) = delete;
  LongCircle& operator=(const LongCircle&) = delete;

  /// Now and then, after the present launch has been looked for: a sentence once that waits for itself.
  std::optional<std::string> look();
  /// Nobody waits for this rank any more.
  void forget();

 private:
  CallPage& page(int rank) const { return present_.board().page(rank); }
  void forget_under_lock();
  const LongCircle* before(const Registry<LongCircle>& all) const;
  void tell_before(const LongCircle& holder);
  void tell_label(uint64_t label);
  std::vector<Labels::Other> labels_of_others() const;
  std::optional<Labels::Other> label_of(int peer, uint64_t launch) const;
  std::string sentence(int peer) const;

  const PresentLaunch& present_;
  const Self self_;
  Labels labels_;
  uint64_t launch_ = 0;                 ///< for which the labels are
  const LongCircle* holder_ = nullptr;  ///< of whom is told that it keeps this rank from its launch
  uint64_t holders_launch_ = 0;
};

}  // namespace nitinol
