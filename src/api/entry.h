// What every function of the C API is wrapped in: nothing throws across it, and each ncclX is a weak alias of pncclX,
// so that a profiler may put its own ncclX in front.
#pragma once

#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "comm/group.h"
#include "nccl.h"

/// Defines p<name> and its weak alias <name>; the body follows.
#define NITINOL_ENTRY(result, name, parameters)                              \
  extern "C" result name parameters __attribute__((weak, alias("p" #name))); \
  extern "C" result p##name parameters

namespace nitinol {

/// Runs `body`; what it throws becomes the result code and the last error. A failure counts for the open group.
template <typename Body>
ncclResult_t guarded(const Body& body) noexcept {
  try {
    return body();
  } catch (const std::exception& thrown) {
    const Error error = as_error(thrown);
    if (error.code() != ncclInProgress) log_error(error);
    group::note_error(error.code(), error.what());
    return error.code();
  } catch (...) {
    log_warn("unexpected error");
    group::note_error(ncclInternalError, "unexpected error");
    return ncclInternalError;
  }
}

/// Records by `record` inside a group of its own, whose end does the work.
template <typename Record>
ncclResult_t grouped(const Record& record) noexcept {
  return guarded([&] {
    group::start();
    try {
      record();
    } catch (const std::exception& thrown) {
      group::note_error(as_error(thrown).code(), thrown.what());
      try {
        static_cast<void>(group::end());
      } catch (const Error&) {  // the error below says more
      }
      throw;
    }
    return group::end();
  });
}

}  // namespace nitinol
