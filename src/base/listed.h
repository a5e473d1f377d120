// Lists of numbers for sentences.
#pragma once

#include <string>
#include <vector>

namespace nitinol {

/// "2", or "0, 2, 3"; the first sixteen.
std::string listed(const std::vector<int>& numbers);

}  // namespace nitinol
