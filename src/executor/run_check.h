// Compares what has run on the ranks of a communicator, as their kernels have noted it (model/run_notes.h). Whatever
// launched it, graphs or calls: where two ranks have run something else they have taken each other's data for their
// own.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/run_notes.h"

namespace nitinol {

class CallBoard;

/// One rank's notes of one kind of calls on the call board: written by it alone. What lies there is only as good as
/// whoever writes it.
class SharedRunNotes {
 public:
  /// Takes over what kernels have noted, who may be at it.
  void take_over(const volatile RunNotes& notes);
  /// All that hold, in ascending order from the oldest.
  std::vector<RunNote> read() const;

 private:
  struct Note {
    std::atomic<uint64_t> number_and_trace;
    std::atomic<uint64_t> mark_and_check;
  };
  std::array<Note, RunNotes::kNotes> notes_;
};

/// Where a rank has run something else than another.
struct DifferentRun {
  struct Marks {
    uint32_t mine = 0;
    uint32_t theirs = 0;
    friend bool operator==(const Marks&, const Marks&) = default;
  };
  int peer = 0;
  bool sends = false;  ///< this rank, if it is a message
  /// Of a call of this rank, and of the peer's in its place; nothing: it is too long ago.
  std::optional<Marks> marks{};
};

/// The first that there is between rank `rank` and any other, among what all have taken over.
std::optional<DifferentRun> find_different_run(const CallBoard& board, int rank);

}  // namespace nitinol
