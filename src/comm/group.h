// The calling thread's group: what was recorded since ncclGroupStart, and what its end does with it.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/batch.h"
#include "comm/communicator.h"
#include "comm/jobs.h"

namespace nitinol {

namespace group {

void start();
/// Ends the innermost group; the outermost end does the work. Throws Error(ncclInvalidUsage) outside of a group, and
/// the group's error. Returns ncclSuccess, or ncclInProgress if a non-blocking communicator goes on in the background.
ncclResult_t end();
/// What was in a group that is not carried out.
struct Simulated {
  bool outermost = false;      ///< else nothing is known, and nothing else was done
  std::optional<double> us{};  ///< what its operations would take, if there are any, and nothing else (estimate.h)
  bool jobs = false;
};
/// In a group: it is destroyed when that has done its work, at the same time as others. False outside of a group, if it
/// is used in this one, and without memory for it: then it is to be destroyed now.
bool leave_at_the_end(const std::shared_ptr<Communicator>& communicator) noexcept;
/// Ends the group without doing its work, of which nothing has had an effect. Returns what was in the outermost group,
/// if that was ended. Throws Error(ncclInvalidUsage) outside of a group, and what end() would find wrong with it; but
/// no communicator fails.
Simulated simulate();
/// Whether what a call records is carried out when the program ends its group, not by the call itself.
bool outlasts_the_call();

/// Throws Error(ncclInvalidArgument) if the group has communicators that block, and this one does not, or the other way
/// round.
void require_same_blocking(const Config& config, const char* function);
/// Communicator::require_ready() for an operation, and require_same_blocking().
void require_ready(const Communicator& communicator, const char* function);
/// Communicator::require(), but what the group has recorded counts as done; and require_same_blocking().
bool require(const Communicator& communicator, Call call, const char* function);
/// For a communicator that is destroyed or aborted within the group, at once: what the group has recorded to begin does
/// so now, as whoever destroys what was revoked waits for nobody.
void begin_early(const Communicator& communicator) noexcept;
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
