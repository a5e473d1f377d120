// Regular expressions for sentences.
#pragma once

#include <string>

namespace nitinol::testing {

/// Whether the ECMAScript expression is found in the text.
bool matches(const std::string& text, const std::string& pattern);

}  // namespace nitinol::testing
