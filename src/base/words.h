// Words in the text of settings, which are the same in small and capital letters.
#pragma once

#include <algorithm>
#include <string_view>

namespace nitinol {

/// Of ASCII letters, whatever the locale.
inline bool same_ignoring_case(std::string_view a, std::string_view b) {
  const auto capital = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return capital(x) == capital(y); });
}

}  // namespace nitinol
