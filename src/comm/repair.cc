#include "comm/repair.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/listed.h"
#include "base/log.h"
#include "base/process_state.h"
#include "base/settings.h"
#include "base/standstill.h"
#include "bootstrap/regroup_desk.h"
#include "comm/communicator.h"
#include "comm/create.h"
#include "comm/group.h"
#include "comm/handle.h"
#include "device/guards.h"
#include "executor/call_words.h"

namespace nitinol {
namespace {

constexpr std::chrono::milliseconds kRevokePatience{10'000};
constexpr std::chrono::milliseconds kLookAtMembersEvery{200};
constexpr std::chrono::milliseconds kPatienceWithTheDying{300};
constexpr const char* kShrink = "ncclCommShrink";

std::string words_for_stopped(const std::string& list) {
  return formatted("stopped (SIGSTOP, or a debugger): {}", list);
}

/// Rather than of other ranks, or of the call.
bool is_of_the_system(const std::exception& thrown) {
  const ncclResult_t code = code_of(thrown);
  return code == ncclSystemError || code == ncclInternalError || code == ncclUnhandledCudaError;
}

/// The list without duplicates, in order. Throws Error(ncclInvalidArgument).
std::vector<int> checked_exclusions(std::span<const int> list, const Communicator& parent) {
  std::vector<int> excluded(list.begin(), list.end());
  std::sort(excluded.begin(), excluded.end());
  excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
  for (const int rank : excluded) {
    if (rank < 0 || rank >= parent.ranks()) {
      fail(ncclInvalidArgument, "ncclCommShrink : rank {} in the exclusion list: the communicator has ranks 0 to {}",
           rank, parent.ranks() - 1);
    }
    if (rank == parent.rank()) {
      fail(ncclInvalidArgument, "ncclCommShrink : rank {} excludes itself: excluded ranks must not call", rank);
    }
  }
  return excluded;
}

Call checked_flags(int flags) {
  if (flags == NCCL_SHRINK_DEFAULT) return Call::kShrink;
  if (flags == NCCL_SHRINK_ABORT) return Call::kShrinkAbort;
  fail(ncclInvalidArgument, "ncclCommShrink : invalid flags {}", flags);
}

/// At the group's end all operations that are to stop do so before anything waits; not at the call, as the group may be
/// refused or only simulated.
void revoke_at_the_end(Job& job, bool to_shrink) {
  job.begin = [communicator = job.communicator, to_shrink] { communicator->begin_revoke(to_shrink); };
  job.let_go = [communicator = job.communicator] { communicator->finish_revoke(); };
  job.leads_to = Stage::kRevoking;
}

void record_shrink(const std::shared_ptr<Communicator>& parent, const ShrinkCall& call) {
  log_call("ncclCommShrink(comm {}, {} ranks excluded, flags {})", static_cast<void*>(call.parent),
           call.excluded.size(), call.flags);
  const Call kind = checked_flags(call.flags);
  static_cast<void>(group::require(*parent, kind, kShrink));
  if (call.handle == nullptr) fail(ncclInvalidArgument, "{} : newcomm argument is NULL", kShrink);
  if (call.excluded.empty()) fail(ncclInvalidArgument, "{} : no ranks to exclude", kShrink);
  const std::vector<int> excluded = checked_exclusions(call.excluded, *parent);
  const bool stop = kind == Call::kShrinkAbort;
  const bool shares = parent->config().shrink_share && !stop && !was_revoked(parent->phase());
  auto child = std::make_shared<Communicator>(
      parent->device(), read_child_config(call.config, parent->config(), shares), "ncclCommShrink");
  child->come_of(*parent);
  Job job;
  job.communicator = parent;
  job.run = [parent, child, excluded, stop] {
    const Communicator::Making making(*parent, child);
    const bool ends_progress = stop && parent->config().blocking;  // else the end of all that goes on does
    try {
      parent->shrink(excluded, *child, stop);
    } catch (const std::exception& thrown) {
      child->fail_because(thrown);
      if (ends_progress) parent->end_progress();
      throw;
    }
    if (ends_progress) parent->end_progress();
  };
  job.dropped = [parent, excluded](const std::exception* why) {
    if (why != nullptr) parent->tell_of_failed_shrink(excluded, *why);
  };
  hand_over(job, child, call.handle);
  if (stop) revoke_at_the_end(job, true);
  group::add(std::move(job));
}

}  // namespace

void shrink(const ShrinkCall& call) {
  const std::shared_ptr<Communicator> parent = shared_communicator_of(call.parent, kShrink);
  try {
    record_shrink(parent, call);
  } catch (const std::exception& thrown) {
    if (is_of_the_system(thrown)) parent->tell_of_failed_shrink(call.excluded, thrown);
    throw;
  }
}

void revoke(ncclComm_t handle, int flags) {
  std::shared_ptr<Communicator> communicator = shared_communicator_of(handle, "ncclCommRevoke");
  if (flags != NCCL_REVOKE_DEFAULT) fail(ncclInvalidArgument, "ncclCommRevoke : invalid flags {}", flags);
  if (!group::require(*communicator, Call::kRevoke, "ncclCommRevoke")) return;
  group::record_for(*communicator, [&] {
    Job job;
    job.communicator = communicator;
    job.run = [communicator] { communicator->finish_revoke(!communicator->config().blocking); };
    job.awaits = Communicator::Awaits::kNoRank;
    revoke_at_the_end(job, false);
    group::add(std::move(job));
  });
}

const char* Communicator::last_error() const {
  if (const char* const failed_repair = failed_repairs_.get()) return failed_repair;
  if (const char* const failure = failure_sentence()) return failure;
  return failed_calls_.get();
}

void Communicator::begin_revoke(bool to_shrink) {
  const Visit visit(*this);
  const Stage before = stage();
  {
    const std::lock_guard lock(failure_mutex_);
    if (was_revoked(phase())) return;
    revoked_to_shrink_.store(to_shrink);
    phase_.store(Phase::kRevoking, std::memory_order_release);
    state_.store(ncclInProgress, std::memory_order_release);
  }
  log_info(Subsystem::kInit, "rank {}: the communicator is revoked", rank_);
  stop_operations();
  // The call that is still under way may wait for other ranks, which may never come: there is no way on for the
  // out-of-band exchange then.
  if (before == Stage::kBusy && background_awaits_.load() == Awaits::kRanks) {
    bootstrap_->report_failure({rank_, ncclRemoteError, formatted("{} revoked the communicator", self_description())});
    return;
  }
  try {
    bootstrap_->report_revoke();
  } catch (const std::bad_alloc&) {
    bootstrap_->report_lack_of_memory();
  }
}

void Communicator::finish_revoke(bool goes_on) {
  const Visit visit(*this);
  try {
    const DeviceGuard device(device_);
    if (!wait_until_quiet(std::chrono::steady_clock::now() + kRevokePatience)) {
      log_info(Subsystem::kInit, "rank {}: a stream holds an operation of the revoked communicator back", rank_);
    }
  } catch (const Error& error) {  // then CUDA runs nothing any more
    log_info(Subsystem::kInit, "rank {}: while the communicator was revoked: {}", rank_, error.what());
  }
  const std::lock_guard lock(failure_mutex_);
  phase_.store(Phase::kRevoked, std::memory_order_release);
  state_.store(goes_on ? ncclInProgress : ncclSuccess, std::memory_order_release);
}

/// What goes wrong is told to those who wait for this rank there, unless it comes from them. That this rank has waited
/// in vain is no news to those who come late: they may meet it when it tries again.
std::unique_ptr<Bootstrap> Communicator::meet_or_tell(const std::vector<int>& excluded, std::vector<int>& members,
                                                      Communicator& child, bool stop) {
  const Meeting meeting = next_meeting(excluded);
  const auto time_is_over =
      std::chrono::steady_clock::now() + std::chrono::seconds(settings().integer(Setting::kInitTimeout));
  try {
    if (stop) finish_revoke(true);
    for (int rank = 0; rank < ranks_; ++rank) {
      if (!std::binary_search(excluded.begin(), excluded.end(), rank)) members.push_back(rank);
    }
    const auto place = std::lower_bound(members.begin(), members.end(), rank_) - members.begin();
    child.place(static_cast<int>(place), static_cast<int>(members.size()));
    return meet(meeting, excluded, members, child);
  } catch (const std::exception& thrown) {
    const bool is_news = is_of_the_system(thrown) && std::chrono::steady_clock::now() < time_is_over;
    if (desk_ && is_news) desk_->report_absence(excluded, key_id(meeting.secret), thrown);
    throw;
  }
}

void Communicator::shrink(const std::vector<int>& excluded, Communicator& child, bool stop) {
  const Visit visit(*this);
  std::vector<int> members;
  try {
    child.set_up(meet_or_tell(excluded, members, child, stop));
  } catch (const std::exception& thrown) {
    const bool is_clear = lacks_memory(thrown) || (desk_ && desk_->has_heard_of_absence());
    const Error error = as_error(thrown);
    fail(error.code(),
         "ncclCommShrink to ranks {} of the old communicator, all of which must exclude the same ranks: {}{}",
         listed(members), error.what(), is_clear ? "" : word_of_members(members, error.what()));
  }
}

RegroupDesk& Communicator::desk() {
  if (desk_) return *desk_;
  std::vector<MeetingPoint> points;
  for (int rank = 0; rank < ranks_; ++rank) points.push_back(handles_->peer(rank).meeting_point);
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks_; ++rank) names.push_back(describe_rank(rank, handles_->peer(rank)));
  desk_ = bootstrap_->open_desk(std::move(points),
                                [names = std::move(names)](int rank) { return names.at(static_cast<size_t>(rank)); });
  return *desk_;
}

/// Others may shrink with this rank, and wait for it, though it has never done so; also if it has come through
/// finalising by a failure.
void Communicator::leave_desk() {
  const Phase now = phase();
  const bool is_through = now == Phase::kFinalised && !has_failed();
  const bool is_awaited = now != Phase::kInitialising && !is_through;
  if (desk_ && (is_awaited || !shrinks_.empty())) desk_->leave();
}

void Communicator::give_up_shrinking_if_told(const Communicator& child) const {
  if (child.abort_flag()->load()) fail(ncclRemoteError, "rank {} aborts its communicator", rank_);
  if (state() == ncclInvalidUsage) {
    const char* const sentence = failure_sentence();
    fail(ncclInvalidUsage, "{}", sentence != nullptr ? sentence : "the old communicator has failed");
  }
  const bool revoked_meanwhile = !config_.blocking && !regroups_.load() && was_revoked(phase());
  if (revoked_meanwhile) fail(ncclRemoteError, "rank {} revokes its communicator", rank_);
}

RegroupArguments Communicator::regroup_arguments(const Meeting& meeting, const std::vector<int>& members,
                                                 const Communicator& child) {
  RegroupArguments arguments;
  arguments.secret = meeting.secret;
  arguments.meet_at = handles_->peer(members.front()).meeting_point;
  arguments.scope = bootstrap_->scope();
  arguments.rank = child.rank();
  arguments.nranks = child.ranks();
  for (const int member : members) {
    arguments.names.push_back(describe_rank(member, handles_->peer(member)) + " of the old communicator");
  }
  arguments.options = bootstrap_options();
  arguments.options.patience_with_stopped = patience_with_stopped(timeout_);
  arguments.abort_flag = child.abort_flag();
  arguments.interrupt = [this, &members, &child, standstill = Standstill(),
                         next = std::chrono::steady_clock::time_point()]() mutable {
    const auto look_after_members = [&] {
      give_up_shrinking_if_told(child);
      const auto now = std::chrono::steady_clock::now();
      if (now < next) return;
      next = now + kLookAtMembersEvery;
      fail_for_lost(members, standstill);
    };
    look_after_members();
    desk().look(look_after_members);
  };
  return arguments;
}

/// If a member does not come any more, or is not waited for any longer.
void Communicator::fail_for_lost(const std::vector<int>& members, Standstill& standstill) const {
  const std::string dead = members_that_are(ProcessState::kDead, members);
  if (!dead.empty()) fail(ncclRemoteError, "{} died before the shrink was done", dead);
  const std::string stopped = members_that_are(ProcessState::kStopped, members);
  const std::chrono::milliseconds waited = standstill.of(stopped);
  if (stopped.empty() || waited < patience_with_stopped(timeout_)) return;
  fail(ncclRemoteError, "waited {} ms (NITINOL_TIMEOUT) in vain; {}", waited.count(), words_for_stopped(stopped));
}

/// The next without these ranks, which may stand in any order. Takes no memory.
Communicator::Meeting Communicator::next_meeting(std::span<const int> excluded) const {
  const auto derive = [](const Secret& secret, uint64_t value) {
    return derive_secret(secret, "shrink", {reinterpret_cast<const uint8_t*>(&value), sizeof(value)});
  };
  Meeting meeting;
  meeting.secret = bootstrap_->secret();
  for (int rank = 0; rank < ranks_; ++rank) {
    const bool is_excluded = std::find(excluded.begin(), excluded.end(), rank) != excluded.end();
    if (is_excluded) meeting.secret = derive(meeting.secret, static_cast<uint64_t>(rank));
  }
  meeting.list = key_id(meeting.secret);
  const auto before = shrinks_.find(meeting.list);
  meeting.number = 1 + (before != shrinks_.end() ? before->second : 0);
  meeting.secret = derive(meeting.secret, meeting.number);
  return meeting;
}

/// Those who meet without these ranks wait for this one, which never comes to the meeting.
void Communicator::tell_of_failed_shrink(std::span<const int> excluded, const std::exception& thrown) noexcept {
  if (code_of(thrown) == ncclInvalidArgument) return;  // the rank may call again
  try {
    const Visit visit(*this);
    if (desk_) desk_->report_absence(excluded, key_id(next_meeting(excluded).secret), thrown);
  } catch (const std::exception&) {
    // It is aborted, which others see.
  }
}

void Communicator::tell_of_failed_split(const std::exception& thrown) noexcept {
  if (!was_revoked(phase()) || code_of(thrown) == ncclInvalidArgument) return;
  try {
    const Visit visit(*this);
    tell_of_failed_set_up(*bootstrap_, thrown);
  } catch (const std::exception&) {
    // It is aborted, which others see.
  }
}

std::unique_ptr<Bootstrap> Communicator::meet(const Meeting& meeting, const std::vector<int>& excluded,
                                              const std::vector<int>& members, const Communicator& child) {
  std::optional<HostWait> wait;  // after an abort nobody waits for this rank in operations any more
  if (phase() != Phase::kRevoked) wait.emplace(*this, HostCall::kShrink, members);
  uint64_t& number = shrinks_[meeting.list];
  number = meeting.number;
  try {
    desk().begin(excluded, number, key_id(meeting.secret), was_revoked(phase()));
    std::unique_ptr<Bootstrap> met = Bootstrap::regroup(regroup_arguments(meeting, members, child));
    desk().end();
    return met;
  } catch (const std::exception& thrown) {
    // Only meetings count that came about: the others may not have been in this one, and are in the next.
    number = std::max(number, desk().highest_number()) - 1;
    desk().end();  // takes no memory, which may be what is lacking
    const Error error = as_error(thrown);
    const bool differ = error.code() == ncclInvalidUsage;
    // Of a failure of the communicator all know, and are not to hear of it again when they repair that.
    const bool tells = differ && state() != ncclInvalidUsage;
    if (tells) desk().end(error.what());
    fail(error.code(), "{}{}", error.what(), differ ? "" : desk().remark());
  }
}

/// The members on this host whose processes are in the state: "rank 3 (host h, pid 7, device 2)" ...
std::string Communicator::members_that_are(ProcessState state, const std::vector<int>& members) const {
  std::string list;
  const Peer& self = handles_->peer(rank_);
  for (const int member : members) {
    const Peer& peer = handles_->peer(member);
    if (peer.host != self.host || peer.process == self.process || process_state(peer.pid, peer.pid_namespace) != state)
      continue;
    list += (list.empty() ? "" : ", ") + describe_rank(member, peer);
  }
  return list;
}

/// All ranks that are, but those that the sentence names so; "" if there are none.
std::string Communicator::stopped_ranks_beside(const std::string& sentence) const {
  std::string list;
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::string stopped = members_that_are(ProcessState::kStopped, {rank});
    if (stopped.empty() || sentence.find(stopped) != std::string::npos) continue;
    list += (list.empty() ? "" : ", ") + stopped;
  }
  return list.empty() ? "" : words_for_stopped(list);
}

/// What is to be said of a wait that was in vain: a rank that is stopped holds up those, too, who wait for others, and
/// no word of a failure passes that goes by way of it.
std::string Communicator::naming_the_stopped(const std::string& sentence) const {
  const std::string stopped = stopped_ranks_beside(sentence);
  return stopped.empty() ? sentence : formatted("{}; {}", sentence, stopped);
}

/// What is to be said of the members of a shrink that failed, and was not `said`. A connection that broke is seen
/// before the end of the process at its other end.
std::string Communicator::word_of_members(const std::vector<int>& members, std::string_view said) const {
  const auto deadline = std::chrono::steady_clock::now() + kPatienceWithTheDying;
  while (true) {
    // Both: one that is stopped held the others up, and those may be through with it and have ended since.
    std::string word;
    const std::string stopped = members_that_are(ProcessState::kStopped, members);
    const bool is_news = said.find(words_for_stopped(stopped)) == std::string_view::npos;
    if (!stopped.empty() && is_news) word += "; " + words_for_stopped(stopped);
    const std::string dead = members_that_are(ProcessState::kDead, members);
    if (!dead.empty()) word += formatted("; dead: {}", dead);
    if (!word.empty()) return word + "; in the old communicator's numbers";
    if (std::chrono::steady_clock::now() >= deadline) return "";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace nitinol
