// The one exception type of set-up code: an ncclResult_t and a sentence that says what failed, where, and what to try.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

#include "nccl.h"

namespace nitinol {

class Error : public std::runtime_error {
 public:
  Error(ncclResult_t code, const std::string& sentence) : std::runtime_error(sentence), code_(code) {}
  ncclResult_t code() const { return code_; }

 private:
  ncclResult_t code_;
};

/// Formats like fmt::format; in one translation unit, so that only the light half of fmt is compiled everywhere.
std::string format_arguments(fmt::string_view text, fmt::format_args arguments);

template <typename... Args>
std::string formatted(fmt::format_string<Args...> text, Args&&... args) {
  return format_arguments(text, fmt::make_format_args(args...));
}

/// Throws Error(code, formatted sentence).
template <typename... Args>
[[noreturn]] void fail(ncclResult_t code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, format_arguments(text, fmt::make_format_args(args...)));
}

/// What was thrown, as an Error: lack of memory or of threads is the system's error.
Error as_error(const std::exception& thrown);

/// Throws Error(ncclSystemError, "<what>: <strerror(errno)>"); `error_number` is an errno value.
[[noreturn]] void fail_errno(int error_number, const std::string& what);

}  // namespace nitinol
