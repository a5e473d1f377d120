// The calling thread's group: what was recorded since ncclGroupStart, and what its end does with it.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "comm/batch.h"
#include "comm/communicator.h"

namespace nitinol {

/// Work on one communicator that may wait for other ranks: initialising, splitting, finalising, destroying.
struct Job {
  std::shared_ptr<Communicator> communicator;  ///< the one whose blocking mode and state count
  std::function<void()> run;                   ///< on a thread of its own; may throw Error
  std::function<void(bool)> finished{};  ///< on the calling thread, for blocking communicators: whether it succeeded
  /// On the calling thread: it will never run, because of this; null: the program does not want it to.
  std::function<void(const std::exception* why)> dropped{};
  Communicator::Awaits awaits = Communicator::Awaits::kRanks;  ///< in the background
  std::shared_ptr<Communicator> made{};  ///< what it makes, if the caller has the handle already, and may poll it
  bool finalises = false;
};

namespace group {

void start();
/// Ends the innermost group; the outermost end does the work. Throws Error(ncclInvalidUsage) outside of a group, and
/// the group's error. Returns ncclSuccess, or ncclInProgress if a non-blocking communicator goes on in the background.
ncclResult_t end();
/// Ends the group without doing its work; throws as end() does. True if the outermost group was ended and had
/// operations in it.
bool drop();
bool open();

/// Throws Error(ncclInvalidArgument) if the group finalises the communicator: then nothing may follow, as outside.
void refuse_if_finalised(const Communicator& communicator, const char* function);
void add(Job job);
void add_task(const Task& task);
/// A call inside the group failed: its end will do nothing and return this, but never that something is in progress.
void note_error(ncclResult_t code, const char* sentence) noexcept;
/// What could not be recorded is the communicator's failure if the system is to blame.
void note_lost_record(Communicator& communicator, const std::exception& thrown) noexcept;

/// Runs what records a call. The others may be in it already: if there is no memory for it, say, they are told.
template <typename Record>
void record_for(Communicator& communicator, const Record& record) {
  try {
    record();
  } catch (const std::exception& thrown) {
    note_lost_record(communicator, thrown);
    throw;
  }
}

}  // namespace group
}  // namespace nitinol
