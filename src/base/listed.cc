#include "base/listed.h"

#include <algorithm>

#include "base/error.h"

namespace nitinol {

std::string listed(const std::vector<int>& numbers) {
  constexpr std::size_t kMostListed = 16;
  std::string list;
  for (std::size_t i = 0; i < std::min(numbers.size(), kMostListed); ++i) {
    list += formatted("{}{}", list.empty() ? "" : ", ", numbers[i]);
  }
  return numbers.size() > kMostListed ? list + " ..." : list;
}

}  // namespace nitinol
