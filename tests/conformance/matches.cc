// In a file of its own, as g++ 12 takes something in std::regex for uninitialised when it is sanitized.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "matches.h"

#include <regex>

namespace nitinol::testing {

bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex(pattern));
}

}  // namespace nitinol::testing
