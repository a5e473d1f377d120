// What a communicator tells of itself: to health monitoring, and in the files that its flight recorder is dumped to.
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/host.h"
#include "base/whole_file.h"
#include "comm/communicator.h"

namespace nitinol {
namespace {

const char* word_for(Stage stage) {
  switch (stage) {
    case Stage::kInitialising: return ras::kInitialising;
    case Stage::kReady: return "ready";
    case Stage::kBusy: return "busy";
    case Stage::kFailed: return "failed";
    case Stage::kRevoking: return "being revoked";
    case Stage::kRevoked:
    case Stage::kRegrouping:
    case Stage::kStopped: return "revoked";
    case Stage::kFinalising: return "finalizing";
    case Stage::kFinalised: return "finalized";
  }
  return "";
}

}  // namespace

std::optional<Executor::Progress> Communicator::progress() const {
  const std::lock_guard lock(executor_mutex_);
  return executor_ ? executor_->progress() : std::nullopt;
}

Executor::Passed Communicator::how_far() const {
  const std::lock_guard lock(executor_mutex_);
  return executor_ ? executor_->passed() : Executor::Passed{};
}

DoingsOfRank Communicator::doings_of(int rank) const {
  const std::lock_guard lock(executor_mutex_);
  if (!executor_) return {};
  const Executor::DoingsOfPeer doings = executor_->doings_of(rank);
  return {doings.text, doings.stopped};
}

std::shared_ptr<const OperationTimes> Communicator::times() const {
  const std::lock_guard lock(executor_mutex_);
  return executor_ ? executor_->times() : nullptr;
}

/// Where the rank is, in a few words: what it waits for on the host is in no stream, and in no flight recorder.
std::string Communicator::state_in_words() const {
  if (aborted_.load()) return ras::kAborted;
  const Stage now = stage();
  if (now == Stage::kReady || now == Stage::kBusy) {
    const HostCall call = waits_in_.load();
    if (call != HostCall::kNone) return formatted("waiting in {}", name_of(call));
    if (const char* next = waits_to_call_.load()) return formatted("waiting to call {}", next);
  }
  return word_for(now);
}

ras::RankReport Communicator::health() const {
  ras::RankReport report;
  report.state = state_in_words();
  if (const char* failure = failure_sentence()) report.failure = failure;
  report.issued = recorder_.issued();
  const auto now = progress();
  report.progress_known = now.has_value();
  const TimeScale scale;
  // What has been noted since is not what has begun.
  const FlightRecorder::Issued issued = recorder_.last_issued(scale, now ? now->begun : report.issued);
  if (!now) {
    report.operation = issued.text;
    return report;
  }
  const auto known_times = times();
  const OperationTimes::Run run = known_times ? known_times->current(scale) : OperationTimes::Run{};
  const bool timed = run.signature.sequence != 0;
  report.begun = timed ? run.signature.sequence : now->begun;  // another one may have begun just now
  report.ended = std::min(now->ended, report.begun);
  if (report.begun != 0) report.operation = timed ? run.signature.text() : issued.text;
  const int64_t since = timed ? run.begun : issued.enqueued;
  if (report.inside() && since != 0 && report.failure.empty()) {
    report.milliseconds =
        static_cast<uint64_t>(std::max<int64_t>(1, (scale.nanoseconds(TimeStamp::now()) - since) / 1'000'000));
  }
  return report;
}

std::string Communicator::dump(bool as_text) const {
  FlightRecorder::About about;
  about.rank = rank_;
  about.ranks = ranks_;
  about.host = host_name();
  about.pid = getpid();
  about.device = device_;
  about.communicator = ras::text_of(identity());
  if (const char* failure = failure_sentence()) about.failure = failure;
  const Executor::Passed passed = how_far();
  about.launches_through = passed.launches;
  about.idle = passed.all;
  about.launches = passed.runs;
  about.launches_begun = passed.begun;
  about.awaited = passed.awaited;
  const auto now = progress();
  about.progress_known = now.has_value();
  about.begun = now ? now->begun : 0;
  about.ended = now ? now->ended : 0;
  if (const auto known_times = times()) {
    about.times_known = about.counts_runs = true;
    about.runs = known_times->last(about.scale);
  }
  return as_text ? recorder_.text(about) : recorder_.json(about);
}

void Communicator::dump_to(const std::string& path) const {
  const int error = write_whole_file(path, dump(path.ends_with(".txt")));
  if (error != 0) fail_errno(error, formatted("writing the flight recorder of rank {} to {}", rank_, path));
}

void Communicator::take_seat(std::span<const Peer> peers) {
  ras::Newcomer newcomer;
  newcomer.id = identity();
  newcomer.secret = bootstrap_->secret();
  newcomer.rank = rank_;
  newcomer.peers = peers;
  seat_.take(newcomer, *this);
}

}  // namespace nitinol
