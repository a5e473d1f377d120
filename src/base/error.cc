#define FMT_HEADER_ONLY
#include "base/error.h"

#include <fmt/format.h>

#include <cstring>

namespace nitinol {

std::string format_arguments(fmt::string_view text, fmt::format_args arguments) {
  return fmt::vformat(text, arguments);
}

void fail_errno(int error_number, const std::string& what) {
  throw Error(ncclSystemError, what + ": " + std::strerror(error_number));
}

}  // namespace nitinol
