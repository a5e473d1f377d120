#include "executor/verify/value.h"

namespace nitinol::verify {

size_t Values::Hash::operator()(const Value& value) const {
  size_t hash = static_cast<size_t>(value.shape) * 4 + (value.scaled ? 2 : 0) + (value.finished ? 1 : 0);
  for (const auto& [first, last] : value.ranks) {
    hash = (hash * 31 + static_cast<size_t>(first)) * 0x9e3779b97f4a7c15ull + static_cast<size_t>(last);
  }
  return hash ^ (hash >> 32);
}

int Values::number_of(const Value& value) {
  const auto [place, fresh] = numbers_.try_emplace(value, static_cast<int>(values_.size()));
  if (fresh) values_.push_back(&place->first);
  return place->second;
}

std::string Value::text() const {
  if (shape == Shape::kNothing) return "nothing";
  std::string text = shape == Shape::kOne ? "the element of rank " : "the reduction of ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 8) return text + " ...";
    const auto& [first, last] = ranks[i];
    text += (i > 0 ? "," : "") + std::to_string(first);
    if (last - first > 1) text += "-" + std::to_string(last - 1);
  }
  return text + (finished ? " (finished)" : "");
}

size_t count_of(const Pieces& pieces) {
  size_t count = 0;
  for (const Piece& piece : pieces) count += piece.count;
  return count;
}

}  // namespace nitinol::verify
