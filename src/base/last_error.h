// The sentence behind ncclGetLastError: one per process, kept until the next one, whether or not logging is on.
#pragma once

#include <string_view>

namespace nitinol {

/// Safe from any thread.
void set_last_error(std::string_view sentence);

/// A text that stays for ever, without needing memory.
void set_last_error_text(const char* text) noexcept;

/// "" before the first error. Lock-free. The text stays valid while others set new errors: it is freed only after a
/// thousand further different sentences.
const char* last_error();

}  // namespace nitinol
