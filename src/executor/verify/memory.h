// One buffer whose elements hold symbolic values, kept as runs.
#pragma once

#include <map>

#include "executor/verify/value.h"

namespace nitinol::verify {

class Memory {
 public:
  enum class Mark : int {
    kInput,    ///< lay there before the run
    kScratch,  ///< written, but not what the collective has to leave here
    kResult,
  };
  struct Cell {
    size_t end = 0;
    size_t element = 0;
    int value = 0;
    Mark mark = Mark::kScratch;
  };

  /// Holds `pieces` from `offset` on, whatever was there.
  void write(size_t offset, const Pieces& pieces, Mark mark);

  /// What lies there; elements never written hold value 0.
  Pieces read(size_t offset, size_t count) const;

  /// Calls visit(begin, end, const Cell*) for each run in [begin, end); null where nothing was written.
  template <class Visit>
  void walk(size_t begin, size_t end, Visit&& visit) const {
    auto place = cells_.upper_bound(begin);
    if (place != cells_.begin() && std::prev(place)->second.end > begin) --place;
    while (begin < end) {
      if (place == cells_.end() || place->first >= end) {
        visit(begin, end, nullptr);
        return;
      }
      if (place->first > begin) {
        visit(begin, place->first, nullptr);
        begin = place->first;
      }
      const size_t stop = place->second.end < end ? place->second.end : end;
      Cell cell = place->second;
      cell.element += begin - place->first;
      visit(begin, stop, &cell);
      begin = stop;
      ++place;
    }
  }

 private:
  void cut(size_t offset);

  std::map<size_t, Cell> cells_;
};

}  // namespace nitinol::verify
