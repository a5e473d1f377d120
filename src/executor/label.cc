#include "executor/label.h"

#include <algorithm>

namespace nitinol {

uint64_t Labels::next(const std::vector<Other>& others) {
  if (looks_++ % kLooksWithOne == 0) own_.push_back(random_() & ~(kSteps | kElsewhere));
  uint64_t highest = own_.back() | kSteps;
  for (const Other& other : others) {
    if ((other.label & kSteps) == 0) continue;
    highest = std::max(highest, (other.label - 1) | (other.elsewhere ? kElsewhere : 0));
  }
  return highest;
}

std::optional<int> Labels::came_back(const std::vector<Other>& others) const {
  for (const Other& other : others) {
    const bool far = other.elsewhere || (other.label & kElsewhere) != 0;
    const uint64_t label = other.label & ~(kSteps | kElsewhere);
    if (far && std::find(own_.begin(), own_.end(), label) != own_.end()) return other.peer;
  }
  return std::nullopt;
}

}  // namespace nitinol
