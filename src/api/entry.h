// What every function of the C API is wrapped in: nothing throws across it, and each ncclX is a weak alias of pncclX,
// so that a profiler may put its own ncclX in front.
#pragma once

#include <exception>

#include "base/error.h"
#include "base/last_error.h"
#include "base/log.h"
#include "comm/group.h"
#include "comm/handle.h"
#include "nccl.h"

/// Defines p<name> and its weak alias <name>; the body follows.
#define NITINOL_ENTRY(result, name, parameters)                              \
  extern "C" result name parameters __attribute__((weak, alias("p" #name))); \
  extern "C" result p##name parameters

namespace nitinol {

/// What is thrown that is no std::exception.
struct Unexpected : std::exception {
  const char* what() const noexcept override { return "unexpected error"; }
};

/// Whether a call is one of those that a group is made of, so that its failure counts for the open one.
enum class InGroup : bool { kNo, kYes };

/// Makes it the last error, also of the communicator, if the call has one, as far as there is memory to tell it. That a
/// communicator is still in progress is the answer to a question.
inline ncclResult_t note_failure(const std::exception& thrown, ncclComm_t comm, InGroup in_group) noexcept {
  const ncclResult_t code = code_of(thrown);
  if (code == ncclInProgress) return code;
  if (in_group == InGroup::kYes) group::note_error(code, sentence_of(thrown));
  note_failed_call(comm, thrown);
  try {
    const Error error = as_error(thrown);
    log_error(error);
    log_trail(error);
  } catch (const std::exception&) {
    set_last_error_text("out of memory: Cannot allocate memory");
  }
  return code;
}

/// Runs `body`; what it throws becomes the result code and the last error, also of the communicator that is called.
template <InGroup in_group = InGroup::kYes, typename Body>
ncclResult_t guarded(ncclComm_t comm, const Body& body) noexcept {
  try {
    return body();
  } catch (const std::exception& thrown) {
    return note_failure(thrown, comm, in_group);
  } catch (...) {
    return note_failure(Unexpected(), comm, in_group);
  }
}

/// Of a call that has no communicator, or ends it.
template <typename Body>
ncclResult_t guarded(const Body& body) noexcept {
  return guarded(nullptr, body);
}

/// Of a call that does its work at once, in an open group too, and leaves nothing to it: a question, memory, an
/// operator.
template <typename Body>
ncclResult_t at_once(ncclComm_t comm, const Body& body) noexcept {
  return guarded<InGroup::kNo>(comm, body);
}

/// Records by `record` inside a group of its own, whose end does the work.
template <typename Record>
ncclResult_t grouped(ncclComm_t comm, const Record& record) noexcept {
  return guarded(comm, [&] {
    group::start();
    try {
      record();
    } catch (const std::exception& thrown) {
      group::note_error(code_of(thrown), sentence_of(thrown));
      try {
        static_cast<void>(group::end());
      } catch (const std::exception&) {  // the error below says more
      }
      throw;
    }
    return group::end();
  });
}

}  // namespace nitinol
