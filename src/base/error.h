// The one exception type of set-up code: an ncclResult_t and a sentence that says what failed, where, and what to try.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <type_traits>

#include "nccl.h"

namespace nitinol {

/// Where in the sources something stands.
struct Place {
  const char* file = "";
  int line = 0;
};

class Error : public std::runtime_error {
 public:
  Error(ncclResult_t code, const std::string& sentence, const char* file = __builtin_FILE(),
        int line = __builtin_LINE())
      : std::runtime_error(sentence), code_(code), place_{file, line} {}
  ncclResult_t code() const { return code_; }
  /// Where it came up.
  Place place() const { return place_; }

 private:
  ncclResult_t code_;
  Place place_;
};

/// A format text that knows where it stands. A class template over the arguments, so that the place is taken at the
/// call.
template <typename... Args>
struct PlacedFormat {
  template <typename Text>
  // NOLINTNEXTLINE(google-explicit-constructor): a format text turns into one at each call
  consteval PlacedFormat(const Text& with, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : text(with), place{file, line} {}
  fmt::format_string<Args...> text;
  Place place;
};

template <typename... Args>
using Placed = PlacedFormat<std::type_identity_t<Args>...>;

/// Formats like fmt::format; in one translation unit, so that only the light half of fmt is compiled everywhere.
std::string format_arguments(fmt::string_view text, fmt::format_args arguments);

template <typename... Args>
std::string formatted(fmt::format_string<Args...> text, Args&&... args) {
  return format_arguments(text, fmt::make_format_args(args...));
}

/// Throws Error(code, formatted sentence).
template <typename... Args>
[[noreturn]] void fail(ncclResult_t code, Placed<Args...> text, Args&&... args) {
  throw Error(code, format_arguments(text.text, fmt::make_format_args(args...)), text.place.file, text.place.line);
}

/// What was thrown, as an Error: lack of memory or of threads is the system's error. May itself lack memory.
Error as_error(const std::exception& thrown);
/// What that says, as far as it takes no memory.
const char* sentence_of(const std::exception& thrown) noexcept;
/// Whether it is lack of memory.
bool lacks_memory(const std::exception& thrown) noexcept;
/// The code of that.
ncclResult_t code_of(const std::exception& thrown) noexcept;

/// Throws Error(ncclSystemError, "<what>: <strerror(errno)>"); `error_number` is an errno value.
[[noreturn]] void fail_errno(int error_number, const std::string& what);

}  // namespace nitinol
