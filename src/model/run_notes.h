// What kernels note of calls whose data does not tell whose it is: how many have run, and which. The host of each rank
// can so be sure of what ran, also if graphs launched it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/types.h"

namespace nitinol {

/// How many calls of one kind have run, and a trace of their marks in that order: with other calls, or in another
/// order, it practically differs from there on. Counts come round.
struct RunCount {
  uint32_t number = 0;
  uint32_t trace = 0;

  NITINOL_HOST_DEVICE RunCount and_then(uint32_t mark) const {
    const uint32_t mix = (trace ^ mark) * 0x9e3779b1U + 0x7f4a7c15U;
    return {number + 1, mix ^ mix >> 15};
  }
};

/// One call that has run. To be written at once; what is half written, or nothing at all, does not hold.
struct alignas(16) RunNote {
  uint32_t number = 0;
  uint32_t trace = 0;  ///< up to and with this call
  uint32_t mark = 0;   ///< the call's
  uint32_t check = 0;

  NITINOL_HOST_DEVICE static RunNote of(const RunCount& count, uint32_t mark) {
    return {count.number, count.trace, mark, check_of(count.number, count.trace, mark)};
  }
  bool holds() const { return check == check_of(number, trace, mark); }

 private:
  NITINOL_HOST_DEVICE static uint32_t check_of(uint32_t number, uint32_t trace, uint32_t mark) {
    return ~(number * 0x85ebca6bU ^ trace * 0xc2b2ae35U ^ mark);
  }
};

/// The last calls of one kind, and every so many-th of the ones before: of ranks that are looked at one after the other
/// some are the same, though they run thousands meanwhile. All zero at first.
struct RunNotes {
  static constexpr uint32_t kRecent = 64;
  static constexpr uint32_t kSparse = 64;
  static constexpr uint32_t kStride = 256;
  static constexpr uint32_t kNotes = kRecent + kSparse;
  RunNote note[kNotes];

  /// Where the note of a call goes, and where another one of it; kNotes: nowhere.
  NITINOL_HOST_DEVICE static constexpr uint32_t place(uint32_t number) { return number % kRecent; }
  NITINOL_HOST_DEVICE static constexpr uint32_t sparse_place(uint32_t number) {
    return number % kStride != 0 ? kNotes : kRecent + number / kStride % kSparse;
  }
};

/// The kinds of calls that are counted apart: collectives by the queue set that they go by, then messages by their
/// other end.
struct RunLines {
  enum Collectives : int { kSimple, kSums, kMesh, kLine, kJoined };
  static constexpr int kCollectives = kJoined + 1;

  static constexpr int count(int ranks) { return kCollectives + messages(ranks); }
  NITINOL_HOST_DEVICE static constexpr int messages(int ranks) { return 2 * ranks; }
  /// Of messages to the peer, or from it; and which of those that messages have.
  static constexpr int of_messages(int peer, bool sends) { return kCollectives + among_messages(peer, sends); }
  NITINOL_HOST_DEVICE static constexpr int among_messages(int peer, bool sends) { return 2 * peer + (sends ? 0 : 1); }
};

}  // namespace nitinol
