#include "comm/departure.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "base/log.h"
#include "base/run_together.h"

namespace nitinol {
namespace {

/// The ranks of this process that have come to leave one communicator.
struct Gathering {
  struct Leaver {
    std::shared_ptr<Communicator> communicator;
    bool tear_down = false;
  };
  std::vector<Leaver> leavers;
  std::vector<int> gone;  ///< ranks that were aborted: nobody waits for them
};

using Leavers = std::vector<Gathering::Leaver>;

struct Gatherings {
  std::mutex mutex;
  std::map<KeyId, Gathering> by_identity;
  std::vector<std::shared_ptr<Leavers>> on_their_way;  ///< who are complete, and wait for the other processes
};

Gatherings& gatherings() {
  static Gatherings* const instance = new Gatherings;  // outlives static destruction
  return *instance;
}

/// The ranks that nobody of the process waits for.
std::vector<int> ranks_done_with(const Gathering& gathering) {
  std::vector<int> ranks = gathering.gone;
  for (const Gathering::Leaver& leaver : gathering.leavers) ranks.push_back(leaver.communicator->rank());
  return ranks;
}

/// Other processes wait for those who are there, and are to know for whom these wait.
void tell_of_awaited(const Gathering& gathering) {
  for (const Gathering::Leaver& leaver : gathering.leavers) {
    try {
      leaver.communicator->tell_of_local_ranks_but(ranks_done_with(gathering));
    } catch (const std::exception&) {  // it is aborted; or there is no memory for more than the rank itself
    }
  }
}

/// Takes the gathering out, and puts it on its way, if everybody of this process is there. Else others hear who is not.
std::shared_ptr<Leavers> take_if_complete(Gatherings& all, const Communicator& communicator) {
  const auto found = all.by_identity.find(communicator.identity());
  Gathering& gathering = found->second;
  const size_t there = gathering.leavers.size() + gathering.gone.size();
  if (there < static_cast<size_t>(communicator.local_ranks())) {
    tell_of_awaited(gathering);
    return nullptr;
  }
  auto leavers = std::make_shared<Leavers>(std::move(gathering.leavers));
  all.by_identity.erase(found);
  all.on_their_way.push_back(leavers);
  return leavers;
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

/// Which of them are to be freed, and wait less. Others may still become so while they wait.
std::vector<bool> hurries_of(const Leavers& leavers) {
  const std::lock_guard lock(gatherings().mutex);
  std::vector<bool> hurries;
  for (const Gathering::Leaver& leaver : leavers) hurries.push_back(leaver.tear_down);
  return hurries;
}

/// They are no longer on their way: nobody marks them any more.
void take_from_the_way(const Leavers& leavers) {
  Gatherings& all = gatherings();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.on_their_way, [&](const auto& other) { return other.get() == &leavers; });
}

/// All leavers, who are on their way, wait for the other processes, each for its own rank: what goes wrong is in its
/// state afterwards, and no business of the rank on whose thread this happens.
void leave_together(Leavers& leavers) {
  const std::vector<bool> in_a_hurry = hurries_of(leavers);
  const auto leave = [](Communicator& communicator, bool hurries) {
    try {
      communicator.finish_finalise(hurries);
    } catch (const std::exception& thrown) {
      communicator.fail_because(thrown);  // word of the failure may not have come over the watch yet
    }
  };
  try {
    run_together(leavers.size(), [&](size_t i) { leave(*leavers[i].communicator, in_a_hurry[i]); });
  } catch (const std::exception& thrown) {
    for (const Gathering::Leaver& leaver : leavers) give_up(*leaver.communicator, thrown);
  }
  take_from_the_way(leavers);
  for (Gathering::Leaver& leaver : leavers) {
    if (leaver.tear_down) leaver.communicator->tear_down();
  }
}

void arrive(const std::shared_ptr<Communicator>& communicator, bool tear_down) {
  Gatherings& all = gatherings();
  std::shared_ptr<Leavers> leavers;
  {
    const std::lock_guard lock(all.mutex);
    const KeyId identity = communicator->identity();
    all.by_identity[identity].leavers.push_back({communicator, tear_down});
    leavers = take_if_complete(all, *communicator);
  }
  if (leavers) leave_together(*leavers);
}

/// A communicator that already waits in a gathering, or is on its way, is to be freed when it has left. False if it has
/// left already.
bool tear_down_when_leaving(const std::shared_ptr<Communicator>& communicator) {
  Gatherings& all = gatherings();
  const std::lock_guard lock(all.mutex);
  const auto mark_in = [&](Leavers& leavers) {
    const auto found = std::find_if(leavers.begin(), leavers.end(),
                                    [&](const Gathering::Leaver& one) { return one.communicator == communicator; });
    if (found == leavers.end()) return false;
    found->tear_down = true;
    return true;
  };
  const auto waiting = all.by_identity.find(communicator->identity());
  if (waiting != all.by_identity.end() && mark_in(waiting->second.leavers)) return true;
  return std::any_of(all.on_their_way.begin(), all.on_their_way.end(),
                     [&](const std::shared_ptr<Leavers>& leavers) { return mark_in(*leavers); });
}

/// The rank will not come: the others of its process need not wait for it.
void leave_out(const std::shared_ptr<Communicator>& communicator) {
  Gatherings& all = gatherings();
  std::shared_ptr<Leavers> leavers;
  {
    const std::lock_guard lock(all.mutex);
    const KeyId identity = communicator->identity();
    Gathering& gathering = all.by_identity[identity];
    std::erase_if(gathering.leavers, [&](const auto& leaver) { return leaver.communicator == communicator; });
    gathering.gone.push_back(communicator->rank());
    leavers = take_if_complete(all, *communicator);
  }
  if (leavers) leave_together(*leavers);
}

/// The ranks of the process for which the communicator still waits in a gathering; "" if it is through with that.
std::string awaited_ranks(Communicator& communicator) {
  Gatherings& all = gatherings();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_identity.find(communicator.identity());
  return found == all.by_identity.end() ? "" : communicator.local_ranks_but(ranks_done_with(found->second));
}

/// Whoever polls is to see that it is not over before the other ranks of the process have come. When all have they keep
/// the time themselves, in finish_finalise.
void wait_for_ranks_of_process(Communicator& communicator) {
  while (!communicator.wait_until_finalised()) {
    const std::string awaited = awaited_ranks(communicator);
    if (awaited.empty()) continue;
    const std::string sentence = formatted(
        "rank {} waited {} ms for {} in ncclCommFinalize, in its own process: does every rank make the same "
        "calls?",
        communicator.rank(), communicator.patience_with_leavers().count(), awaited);
    communicator.fail_with(ncclRemoteError, sentence, true);
  }
}

}  // namespace

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
  if (communicator->phase() == Phase::kInitialising) {  // failed, or the split that makes it still runs
    communicator->abort();
    communicator->tear_down();
    return;
  }
  if (communicator->state() != ncclSuccess || was_revoked(communicator->phase())) {
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
  const auto note = [&](const std::exception& error) {
    log_info(Subsystem::kDestroy, "rank {}: while the communicator was destroyed: {}", communicator->rank(),
             error.what());
  };
  try {
    communicator->begin_finalise(true);
  } catch (const std::exception& error) {
    note(error);
    return abort(communicator);
  }
  try {
    arrive(communicator, true);
  } catch (const std::bad_alloc& lack) {
    give_up(*communicator, lack);
  } catch (const std::exception& error) {
    note(error);
  }
}

void abort(const std::shared_ptr<Communicator>& communicator) {
  communicator->abort();
  communicator->wait_for_background();
  // One that was finalised is gone from where the ranks of its process gather.
  const bool took_part = communicator->phase() != Phase::kInitialising && communicator->phase() != Phase::kFinalised;
  communicator->tear_down();
  // Only now, when the others can know of it: they may be let go here, and would wait for this rank.
  if (took_part) leave_out(communicator);
}

}  // namespace nitinol
