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

bool lacks_memory(const std::exception& thrown) noexcept {
  return dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr;
}

ncclResult_t code_of(const std::exception& thrown) noexcept {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return error->code();
  const bool of_the_system = lacks_memory(thrown) || dynamic_cast<const std::system_error*>(&thrown) != nullptr;
  return of_the_system ? ncclSystemError : ncclInternalError;
}

const char* sentence_of(const std::exception& thrown) noexcept {
  return lacks_memory(thrown) ? "out of memory: Cannot allocate memory" : thrown.what();
}

Error as_error(const std::exception& thrown) {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return *error;
  if (lacks_memory(thrown)) return {code_of(thrown), sentence_of(thrown)};
  if (const auto* error = dynamic_cast<const std::system_error*>(&thrown)) {
    return {code_of(thrown), std::string("the system refused a thread or a lock: ") + error->what()};
  }
  return {code_of(thrown), std::string("unexpected error: ") + thrown.what()};
}

void fail_errno(int error_number, const std::string& what) {
  throw Error(ncclSystemError, what + ": " + std::strerror(error_number));
}

}  // namespace nitinol
