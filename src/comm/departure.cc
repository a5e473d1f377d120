#include "comm/departure.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fork_safe.h"
#include "base/log.h"
#include "bootstrap/long_wait.h"
#include "comm/gathering.h"
#include "device/run_together_on.h"

namespace nitinol {

namespace {

using Leavers = std::vector<Gathering::Leaver>;

struct Gatherings {
  std::mutex mutex;
  std::map<KeyId, std::weak_ptr<Gathering>> by_identity;
};

Gatherings& gatherings() {
  static Gatherings& instance = make_free_across_forks<Gatherings>();
  return instance;
}

/// Others wait for those who are there, and are to know that they have come, and for whom they wait.
void tell_of_awaited(const Gathering& gathering) {
  for (const Gathering::Leaver& leaver : gathering.leavers) {
    try {
      leaver.communicator->tell_of_local_ranks_but(gathering.done_with());
    } catch (const std::exception&) {  // it is aborted; or there is no memory for more than the rank itself
    }
  }
}

/// True if everybody of this process is there. Else others hear who is not.
bool set_off_if_complete(Gathering& gathering) {
  if (gathering.sets_off()) return true;
  tell_of_awaited(gathering);
  return false;
}

/// The other ranks are not to wait for one that cannot leave properly.
void give_up(Communicator& communicator, const std::exception& thrown) noexcept {
  try {
    const Communicator::Visit visit(communicator);
    try {
      const Error error = as_error(thrown);
      communicator.fail_with(error.code(), error.what(), true);
    } catch (const std::exception& lack) {
      communicator.fail_because(lack);
    }
  } catch (const std::exception&) {  // it is aborted at the same time, which tells them, too
  }
}

/// Whether it is to be freed, and waits less. Others may still become so while they wait.
bool hurries(Gathering& gathering, size_t leaver) {
  const std::lock_guard lock(gathering.mutex);
  return gathering.leavers[leaver].tear_down;
}

/// What goes wrong is in the rank's state afterwards, and no business of the one on whose thread this happens.
void leave(Communicator& communicator, bool in_a_hurry) noexcept {
  try {
    communicator.finish_finalise(in_a_hurry);
  } catch (const std::exception& thrown) {
    communicator.fail_because(thrown);  // word of the failure may not have come over the watch yet
  }
}

/// They are no longer on their way: nobody marks them any more.
Leavers take_leavers(Gathering& gathering) {
  const std::lock_guard lock(gathering.mutex);
  return std::exchange(gathering.leavers, {});
}

/// All leavers, who are on their way, wait for the other processes, each for its own rank.
void leave_together(Gathering& gathering) {
  Leavers& leavers = gathering.leavers;
  try {
    run_together_on(
        leavers.size(), [&](size_t i) { return leavers[i].communicator->device(); },
        [&](size_t i) { leave(*leavers[i].communicator, hurries(gathering, i)); });
  } catch (const std::exception& thrown) {
    for (const Gathering::Leaver& leaver : leavers) give_up(*leaver.communicator, thrown);
  }
  for (const Gathering::Leaver& leaver : take_leavers(gathering)) {
    if (leaver.tear_down) leaver.communicator->tear_down();
  }
}

/// Takes no memory: nobody else would leave, or free what leaves.
void arrive(const std::shared_ptr<Communicator>& communicator, bool tear_down) {
  const std::shared_ptr<Gathering> gathering = communicator->gathering();
  {
    const std::lock_guard lock(gathering->mutex);
    if (!gathering->add({communicator->rank(), communicator, tear_down})) return;
    if (!set_off_if_complete(*gathering)) return;
  }
  leave_together(*gathering);
}

/// A communicator that already waits in a gathering, or is on its way, is to be freed when it has left. False if it has
/// left already.
bool tear_down_when_leaving(const std::shared_ptr<Communicator>& communicator) {
  const std::shared_ptr<Gathering> gathering = communicator->gathering();
  const std::lock_guard lock(gathering->mutex);
  Leavers& leavers = gathering->leavers;
  const auto found = std::find_if(leavers.begin(), leavers.end(),
                                  [&](const Gathering::Leaver& one) { return one.communicator == communicator; });
  if (found == leavers.end()) return false;
  found->tear_down = true;
  return true;
}

/// The rank will not come: the others of its process need not wait for it. Takes no memory.
void leave_out(const std::shared_ptr<Communicator>& communicator) {
  const std::shared_ptr<Gathering> gathering = communicator->gathering();
  {
    const std::lock_guard lock(gathering->mutex);
    if (!gathering->leave_out(communicator->rank())) return;
    if (!set_off_if_complete(*gathering)) return;
  }
  leave_together(*gathering);
}

/// The ranks of the process for which the communicator still waits in a gathering; "" if it is through with that.
std::string awaited_ranks(Communicator& communicator) {
  const std::shared_ptr<Gathering> gathering = communicator.gathering();
  const std::lock_guard lock(gathering->mutex);
  return gathering->on_its_way ? "" : communicator.local_ranks_but(gathering->done_with());
}

/// "" if all ranks of its process have come.
std::string complaint_after(std::chrono::milliseconds waited, Communicator& communicator) {
  const std::string awaited = awaited_ranks(communicator);
  if (awaited.empty()) return "";
  return formatted(
      "rank {} waited {} ms for {} in ncclCommFinalize, in its own process: does every rank make the same calls?",
      communicator.rank(), waited.count(), awaited);
}

void warn_of_ranks_of_process(std::chrono::milliseconds waited, Communicator& communicator) {
  const std::string complaint = complaint_after(waited, communicator);
  if (complaint.empty()) return;
  const char* const end = communicator.timeout().count() > 0 ? "NITINOL_TIMEOUT" : "NITINOL_INIT_TIMEOUT";
  tell_of_wait([&] { return formatted("still waiting ({} ends such waits): {}", end, complaint); });
}

/// Whoever polls is to see that it is not over before the other ranks of the process have come, but where those may
/// wait for this one in another communicator: the last to come leaves for it. When all have they keep the time
/// themselves, in finish_finalise.
void wait_for_ranks_of_process(Communicator& communicator) {
  if (communicator.may_leave_alone()) {
    while (!communicator.wait_until_finalised(Communicator::kPatienceTogether)) {
      if (!awaited_ranks(communicator).empty()) return;
    }
    return;
  }
  const std::chrono::milliseconds patience = communicator.patience_with_leavers();
  std::chrono::milliseconds left = patience;
  if (const auto due = warn_after(); due.count() > 0 && due < patience) {
    if (communicator.wait_until_finalised(due)) return;
    warn_of_ranks_of_process(due, communicator);
    left -= due;
  }
  while (!communicator.wait_until_finalised(left)) {
    const std::string complaint = complaint_after(patience, communicator);
    if (!complaint.empty()) communicator.fail_with(ncclRemoteError, complaint, true);
    left = patience;
  }
}

/// On a thread of its own others of its process may be leaving, who wait for ranks that come no more: that this one
/// goes lets them be. Before it is torn down, which waits for that thread.
void tell_that_it_goes(Communicator& communicator) noexcept {
  if (communicator.phase() != Phase::kFinalising || communicator.has_failed()) return;
  try {
    communicator.bootstrap().report_failure({communicator.rank(), ncclRemoteError,
                                             formatted("rank {} aborted its communicator", communicator.rank()),
                                             Parting::kDeparted});
  } catch (const std::exception&) {
    communicator.bootstrap().report_lack_of_memory();
  }
}

void note_in_log(const Communicator& communicator, const std::exception& thrown) noexcept {
  try {
    log_info(Subsystem::kDestroy, "rank {}: while the communicator was destroyed: {}", communicator.rank(),
             thrown.what());
  } catch (const std::exception&) {  // no memory for a line
  }
}

}  // namespace

std::shared_ptr<Gathering> join_gathering(const KeyId& identity, std::ptrdiff_t local_ranks) {
  Gatherings& all = gatherings();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.by_identity, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Gathering>& known = all.by_identity[identity];
  std::shared_ptr<Gathering> gathering = known.lock();
  if (!gathering) known = gathering = std::make_shared<Gathering>(static_cast<size_t>(local_ranks));
  return gathering;
}

void finalise(const std::shared_ptr<Communicator>& communicator) {
  try {
    communicator->begin_finalise(false);
    arrive(communicator, false);
    if (!communicator->config().blocking) wait_for_ranks_of_process(*communicator);
  } catch (const std::exception& thrown) {
    // One that is leaving already, by another call, leaves all the same.
    if (code_of(thrown) != ncclInvalidUsage) give_up(*communicator, thrown);
    throw;
  }
  communicator->throw_failure();
}

void destroy(const std::shared_ptr<Communicator>& communicator) {
  communicator->expect_end();
  communicator->wait_for_background();
  const bool is_made = communicator->phase() != Phase::kInitialising;  // else failed, or the split that makes it runs
  if (!is_made || communicator->state() != ncclSuccess || was_revoked(communicator->phase())) {
    abort(communicator);
    return;
  }
  if (communicator->phase() == Phase::kFinalised) {
    communicator->tear_down();
    return;
  }
  if (communicator->phase() == Phase::kFinalising) {
    if (!tear_down_when_leaving(communicator)) communicator->tear_down();
    return;
  }
  try {
    communicator->begin_finalise(true);
  } catch (const std::exception& thrown) {
    note_in_log(*communicator, thrown);
    return abort(communicator);
  }
  arrive(communicator, true);
}

void abort(const std::shared_ptr<Communicator>& communicator) {
  communicator->abort();
  tell_that_it_goes(*communicator);
  communicator->wait_for_background();
  communicator->tear_down();
  // Only now, when the others can know of it: they may be let go here, and would wait for this rank. Not before, too,
  // as it may just have been made. One that was finalised is gone from where the ranks of its process gather.
  const Phase phase = communicator->phase();
  if (phase != Phase::kInitialising && phase != Phase::kFinalised) leave_out(communicator);
}

}  // namespace nitinol
