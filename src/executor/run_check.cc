#include "executor/run_check.h"

#include <algorithm>

#include "executor/call_board.h"

namespace nitinol {
namespace {

uint64_t packed(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

/// Whether a count comes before another, which may have come round.
bool before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

/// Compares the calls that both have noted. Once traces differ they do so for ever; the first two that are different
/// calls are told.
std::optional<DifferentRun> difference(const std::vector<RunNote>& mine, const std::vector<RunNote>& theirs) {
  std::optional<DifferentRun> found;
  auto other = theirs.begin();
  for (const RunNote& note : mine) {
    while (other != theirs.end() && before(other->number, note.number)) ++other;
    if (other == theirs.end()) break;
    if (other->number != note.number || other->trace == note.trace) continue;
    if (!found) found.emplace();
    if (other->mark == note.mark) continue;
    found->marks = {note.mark, other->mark};
    break;
  }
  return found;
}

}  // namespace

void SharedRunNotes::take_over(const volatile RunNotes& notes) {
  for (size_t i = 0; i < notes_.size(); ++i) {
    const volatile RunNote& from = notes.note[i];
    RunNote note;
    note.number = from.number;
    note.trace = from.trace;
    note.mark = from.mark;
    note.check = from.check;
    if (!note.holds()) continue;
    notes_[i].number_and_trace.store(packed(note.number, note.trace), std::memory_order_relaxed);
    notes_[i].mark_and_check.store(packed(note.mark, note.check), std::memory_order_release);
  }
}

std::vector<RunNote> SharedRunNotes::read() const {
  std::vector<RunNote> found;
  for (const Note& from : notes_) {
    RunNote note;
    const uint64_t second = from.mark_and_check.load(std::memory_order_acquire);
    const uint64_t first = from.number_and_trace.load(std::memory_order_acquire);
    note.number = static_cast<uint32_t>(first);
    note.trace = static_cast<uint32_t>(first >> 32);
    note.mark = static_cast<uint32_t>(second);
    note.check = static_cast<uint32_t>(second >> 32);
    if (note.holds()) found.push_back(note);
  }
  if (found.empty()) return found;
  // From the newest, as counts come round.
  uint32_t newest = found.front().number;
  for (const RunNote& note : found) newest = before(newest, note.number) ? note.number : newest;
  const auto age = [newest](const RunNote& note) { return newest - note.number; };
  std::sort(found.begin(), found.end(), [&](const RunNote& a, const RunNote& b) { return age(a) > age(b); });
  return found;
}

std::optional<DifferentRun> find_different_run(const CallBoard& board, int rank) {
  std::array<std::vector<RunNote>, RunLines::kCollectives> mine;
  for (int line = 0; line < RunLines::kCollectives; ++line) {
    mine[static_cast<size_t>(line)] = board.runs(rank, line).read();
  }
  for (int peer = 0; peer < board.ranks(); ++peer) {
    if (peer == rank) continue;
    std::optional<DifferentRun> found;
    for (int line = 0; line < RunLines::kCollectives && !found; ++line) {
      const std::vector<RunNote>& notes = mine[static_cast<size_t>(line)];
      if (!notes.empty()) found = difference(notes, board.runs(peer, line).read());
    }
    for (const bool sends : {true, false}) {
      if (found) break;
      const std::vector<RunNote> notes = board.runs(rank, RunLines::of_messages(peer, sends)).read();
      if (!notes.empty()) found = difference(notes, board.runs(peer, RunLines::of_messages(rank, !sends)).read());
      if (found) found->sends = sends;
    }
    if (!found) continue;
    found->peer = peer;
    return found;
  }
  return std::nullopt;
}

}  // namespace nitinol
