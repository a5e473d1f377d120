// Work on communicators that may wait for other ranks: a group's end runs it, in the call or in the background, or
// drops it.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace nitinol {

/// Work on one communicator that may wait for other ranks: initialising, splitting, finalising, destroying.
struct Job {
  std::shared_ptr<Communicator> communicator;  ///< the one whose blocking mode and state count
  std::function<void()> run;                   ///< on a thread of its own; may throw Error
  std::function<void(bool)> finished{};  ///< on the calling thread, for blocking communicators: whether it succeeded
  std::function<void()> begin{};   ///< on the calling thread at the group's end: what takes effect before any job runs
  std::function<void()> let_go{};  ///< on the calling thread: it has begun and will never run
  /// On the calling thread: it will never run, because of this; null: the program does not want it to.
  std::function<void(const std::exception* why)> dropped{};
  Communicator::Awaits awaits = Communicator::Awaits::kRanks;  ///< in the background
  std::shared_ptr<Communicator> made{};  ///< what it makes, if the caller has the handle already, and may poll it
  std::optional<Stage> leads_to{};       ///< for what the group calls behind it
};

/// Runs the jobs of one group, of which there are some: those of a communicator one after the other, in the order of
/// the calls, those of different ones at the same time, since they wait for each other. Returns ncclInProgress if they
/// go on in the background. Throws the first error.
ncclResult_t run_jobs(const std::vector<Job>& jobs);

/// What takes effect before any job runs.
void begin(const Job& job);

/// They will never run. `by_intention`: because the program wants it so.
void drop_jobs(std::span<const Job> jobs, const std::exception& thrown, bool by_intention = false);
/// That they will never run is told to those elsewhere who may wait for what they would have called. `why` null: the
/// program wants it so. Takes no memory but where there is some.
void tell_of_drop(std::span<const Job> jobs, const std::exception* why) noexcept;

/// Whoever polls what a job was to make is not to wait for it.
void give_up_making(const Job& job, const std::exception& thrown);

/// The communicator fails with what was thrown, if it is still there.
void fail_communicator(Communicator& communicator, const std::exception& thrown) noexcept;

}  // namespace nitinol
