#include "executor/verify/memory.h"

namespace nitinol::verify {

void Memory::cut(size_t offset) {
  auto place = cells_.upper_bound(offset);
  if (place == cells_.begin()) return;
  --place;
  const auto [begin, cell] = *place;
  if (begin == offset || cell.end <= offset) return;
  place->second.end = offset;
  cells_.emplace_hint(std::next(place), offset, Cell{cell.end, cell.element + (offset - begin), cell.value, cell.mark});
}

void Memory::write(size_t offset, const Pieces& pieces, Mark mark) {
  const size_t end = offset + count_of(pieces);
  cut(offset);
  cut(end);
  auto after = cells_.erase(cells_.lower_bound(offset), cells_.lower_bound(end));
  for (const Piece& piece : pieces) {
    const Cell cell{offset + piece.count, piece.element, piece.value, mark};
    if (after != cells_.begin()) {
      auto& [before_begin, before] = *std::prev(after);
      if (before.end == offset && before.value == cell.value && before.mark == mark &&
          before.element + (offset - before_begin) == cell.element) {
        before.end = cell.end;
        offset = cell.end;
        continue;
      }
    }
    cells_.emplace_hint(after, offset, cell);
    offset = cell.end;
  }
}

Pieces Memory::read(size_t offset, size_t count) const {
  Pieces pieces;
  walk(offset, offset + count, [&](size_t begin, size_t end, const Cell* cell) {
    pieces.push_back(cell ? Piece{end - begin, cell->element, cell->value} : Piece{end - begin, 0, 0});
  });
  return pieces;
}

}  // namespace nitinol::verify
