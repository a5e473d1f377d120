// Lists in the text of settings.
#pragma once

#include <string_view>
#include <vector>

namespace nitinol {

/// What stands before, between and after the separators: one part more than there are separators, empty ones included.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace nitinol
