#define FMT_HEADER_ONLY
#include "base/error.h"

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <system_error>

namespace nitinol {

std::string format_arguments(fmt::string_view text, fmt::format_args arguments) {
  return fmt::vformat(text, arguments);
}

Error as_error(const std::exception& thrown) {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr) {
    return {ncclSystemError, std::string("out of memory: ") + std::strerror(ENOMEM)};
  }
  if (const auto* error = dynamic_cast<const std::system_error*>(&thrown)) {
    return {ncclSystemError, std::string("the system refused a thread or a lock: ") + error->what()};
  }
  return {ncclInternalError, std::string("unexpected error: ") + thrown.what()};
}

void fail_errno(int error_number, const std::string& what) {
  throw Error(ncclSystemError, what + ": " + std::strerror(error_number));
}

}  // namespace nitinol
